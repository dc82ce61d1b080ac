// The kernel's futex and nothing around it: no robustness, no checks, no polling before sleeping.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>

#include "sync/parts.hpp"

namespace drover::bench {
namespace {

using Word = std::atomic<std::uint32_t>;

void sleep_while(Word& word, std::uint32_t value) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, nullptr, nullptr, 0);
}
void wake(Word& word, int count) { ::syscall(SYS_futex, &word, FUTEX_WAKE, count, nullptr, nullptr, 0); }

struct alignas(kFarApart) LoneWord {
  Word word{0};
};

// 0 free, 1 held, 2 held and others may sleep.
class FutexLock {
 public:
  using Own = LoneWord;
  explicit FutexLock(const Opening<Own>& opening) : word_(opening.shared.own.word) {}
  void lock() {
    std::uint32_t seen = 0;
    if (word_.compare_exchange_strong(seen, 1, std::memory_order_acquire)) return;
    while (word_.exchange(2, std::memory_order_acquire) != 0) sleep_while(word_, 2);
  }
  void unlock() {
    if (word_.exchange(0, std::memory_order_release) == 2) wake(word_, 1);
  }

 private:
  Word& word_;
};

struct TwoWords {
  LoneWord first;
  LoneWord second;
};

class FutexTurns {
 public:
  using Own = TwoWords;
  explicit FutexTurns(const Opening<Own>& opening)
      : own_(opening.order.index == 0 ? opening.shared.own.first.word : opening.shared.own.second.word),
        other_(opening.order.index == 0 ? opening.shared.own.second.word : opening.shared.own.first.word) {}
  void give() {
    other_.store(1);
    wake(other_, 1);
  }
  void take() {
    while (own_.load() == 0) sleep_while(own_, 0);
    own_.store(0);
  }

 private:
  Word& own_;
  Word& other_;
};

struct Rounds {
  LoneWord came;
  LoneWord round;
};

class FutexBarrier {
 public:
  using Own = Rounds;
  explicit FutexBarrier(const Opening<Own>& opening)
      : shared_(opening.shared.own), parties_(opening.order.cell.processes) {}
  void wait() {
    const std::uint32_t round = shared_.round.word.load();
    if (shared_.came.word.fetch_add(1) + 1 == parties_) {
      shared_.came.word.store(0);
      shared_.round.word.fetch_add(1);
      bench::wake(shared_.round.word, INT_MAX);
      return;
    }
    while (shared_.round.word.load() == round) sleep_while(shared_.round.word, round);
  }

 private:
  Rounds& shared_;
  std::uint32_t parties_;
};

template <class T>
Made make(const Cell&, const Session&) {
  return make_shared_memory<T>([](auto*) {});
}

}  // namespace

std::span<const Contender> futex_contenders() {
  static const std::array all = {
      Contender{Kind::lock, "futex", make<LoneWord>, play_way<FutexLock>},
      Contender{Kind::semaphore_turns, "futex", make<TwoWords>, play_way<FutexTurns>},
      Contender{Kind::event_turns, "futex", make<TwoWords>, play_way<FutexTurns>},
      Contender{Kind::condition_turns, "futex", make<TwoWords>, play_way<FutexTurns>},
      Contender{Kind::barrier, "futex", make<Rounds>, play_way<FutexBarrier>},
  };
  return all;
}

}  // namespace drover::bench
