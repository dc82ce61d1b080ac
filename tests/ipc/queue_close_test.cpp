// The last record of a closed queue: everybody who waits learns from it that the queue is drained.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/mapping.hpp"
#include "drover/ipc/queue.hpp"
#include "ipc/queue_layout.hpp"
#include "ipc/sync_support.hpp"
#include "support/test_session.hpp"

namespace drover::test {
namespace {

// A page whose first reader waits until it is let go: it holds a put between claim and publication. One at a time.
class HeldPage {
 public:
  HeldPage() {
    ::mprotect(page_.data(), page_.size(), PROT_NONE);
    begin_ = page_.data();
    is_touched_ = false;
    may_go_ = false;
    struct sigaction action{};
    action.sa_sigaction = hold;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, &before_);
  }
  HeldPage(const HeldPage&) = delete;
  HeldPage& operator=(const HeldPage&) = delete;
  ~HeldPage() {
    let_go();
    ::sigaction(SIGSEGV, &before_, nullptr);
  }

  [[nodiscard]] std::span<const std::byte> bytes() const { return page_.bytes(); }
  [[nodiscard]] static bool is_touched() { return is_touched_; }
  static void let_go() { may_go_ = true; }

 private:
  static constexpr std::size_t kBytes = 4096;

  static void hold(int signal, siginfo_t* info, void*) {
    const auto* const address = static_cast<const std::byte*>(info->si_addr);
    if (address < begin_ || address >= begin_ + kBytes) {
      ::signal(signal, SIG_DFL);  // a real fault: it comes again at once
      return;
    }
    is_touched_ = true;
    while (!may_go_) ::usleep(100);
    ::mprotect(begin_, kBytes, PROT_READ);
  }

  static inline std::atomic<std::byte*> begin_;
  static inline std::atomic<bool> is_touched_;
  static inline std::atomic<bool> may_go_;
  Mapping page_ = Mapping::anonymous(kBytes);
  struct sigaction before_{};
};

TEST(QueueClose, its_last_record_wakes_all_who_wait_for_the_end) {
  TestSession session;
  Queue queue(session.join(), QueueOptions{.capacity = 4});
  HeldPage page;
  std::thread putter([&] { EXPECT_EQ(queue.put(page.bytes().first(8)), PutResult::put); });
  EXPECT_TRUE(eventually(HeldPage::is_touched));
  queue.close();
  std::atomic<int> got = 0;
  std::atomic<int> ended = 0;
  // All have it open to the end, since one who closes it wakes the others.
  std::array<Queue, 3> queues{Queue(session.join(), queue.handle()), Queue(session.join(), queue.handle()),
                              Queue(session.join(), queue.handle())};
  std::vector<std::thread> consumers;
  for (Queue& mine : queues) {
    consumers.emplace_back([&] {
      Message message;
      const GetResult result = mine.get(message, patient());
      if (result == GetResult::got) ++got;
      if (result == GetResult::closed) ++ended;
    });
  }
  const auto membership = session.join();
  const auto& head = layout_for<RingHead>(membership, queue.handle());
  EXPECT_TRUE(eventually([&] { return has_sleeper(head.record_ready); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // so that the others most likely sleep too
  HeldPage::let_go();
  putter.join();
  for (auto& consumer : consumers) consumer.join();
  EXPECT_EQ(got, 1);
  EXPECT_EQ(ended, 2);
}

}  // namespace
}  // namespace drover::test
