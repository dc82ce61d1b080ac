// Boost.Interprocess: the synchronisation objects for shared memory.
#include "sync/workload.hpp"

#ifdef DROVER_BENCH_BOOST

#include <boost/interprocess/sync/interprocess_condition.hpp>
#include <boost/interprocess/sync/interprocess_mutex.hpp>
#include <boost/interprocess/sync/interprocess_semaphore.hpp>
#include <boost/interprocess/sync/scoped_lock.hpp>

#include "sync/parts.hpp"

namespace drover::bench {
namespace {

namespace interprocess = boost::interprocess;

class Mutex {
 public:
  using Own = interprocess::interprocess_mutex;
  explicit Mutex(const Opening<Own>& opening) : mutex_(opening.shared.own) {}
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  Own& mutex_;
};

Made make_mutex(const Cell&, const Session&) {
  return make_shared_memory<interprocess::interprocess_mutex>([](auto*) {});
}

struct OneSemaphore {
  interprocess::interprocess_semaphore semaphore{1};
};

class SemaphoreLock {
 public:
  using Own = OneSemaphore;
  explicit SemaphoreLock(const Opening<Own>& opening) : semaphore_(opening.shared.own.semaphore) {}
  void lock() { semaphore_.wait(); }
  void unlock() { semaphore_.post(); }

 private:
  interprocess::interprocess_semaphore& semaphore_;
};

Made make_semaphore(const Cell&, const Session&) {
  return make_shared_memory<OneSemaphore>([](auto*) {});
}

struct TwoSemaphores {
  alignas(kFarApart) interprocess::interprocess_semaphore first{0};
  alignas(kFarApart) interprocess::interprocess_semaphore second{0};
};

class SemaphoreTurns {
 public:
  using Own = TwoSemaphores;
  explicit SemaphoreTurns(const Opening<Own>& opening)
      : own_(opening.order.index == 0 ? opening.shared.own.first : opening.shared.own.second),
        other_(opening.order.index == 0 ? opening.shared.own.second : opening.shared.own.first) {}
  void give() { other_.post(); }
  void take() { own_.wait(); }

 private:
  interprocess::interprocess_semaphore& own_;
  interprocess::interprocess_semaphore& other_;
};

Made make_two_semaphores(const Cell&, const Session&) {
  return make_shared_memory<TwoSemaphores>([](auto*) {});
}

struct GuardedTurn {
  interprocess::interprocess_mutex mutex;
  interprocess::interprocess_condition condition;
  std::uint32_t turn = 0;
};

class ConditionTurns {
 public:
  using Own = GuardedTurn;
  explicit ConditionTurns(const Opening<Own>& opening) : shared_(opening.shared.own), index_(opening.order.index) {}
  void give() {
    {
      const Held held(shared_.mutex);
      shared_.turn = 1 - index_;
    }
    shared_.condition.notify_one();
  }
  void take() {
    Held held(shared_.mutex);
    while (shared_.turn != index_) shared_.condition.wait(held);
  }

 private:
  using Held = interprocess::scoped_lock<interprocess::interprocess_mutex>;
  GuardedTurn& shared_;
  std::uint32_t index_;
};

Made make_turn(const Cell&, const Session&) {
  return make_shared_memory<GuardedTurn>([](auto*) {});
}

}  // namespace

std::span<const Contender> boost_contenders() {
  static const std::array all = {
      Contender{Kind::lock, "boost mutex", make_mutex, play_way<Mutex>},
      Contender{Kind::semaphore, "boost semaphore", make_semaphore, play_way<SemaphoreLock>},
      Contender{Kind::semaphore_turns, "boost semaphore", make_two_semaphores, play_way<SemaphoreTurns>},
      Contender{Kind::condition_turns, "boost condition", make_turn, play_way<ConditionTurns>},
  };
  return all;
}

}  // namespace drover::bench

#else

namespace drover::bench {

std::span<const Contender> boost_contenders() { return {}; }

}  // namespace drover::bench

#endif
