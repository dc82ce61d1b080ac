// The last record of a closed queue tells all waiters that the queue is drained.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/mapping.hpp"
#include "drover/ipc/queue.hpp"
#include "ipc/queue/queue_layout.hpp"
#include "ipc/sync/sync_support.hpp"
#include "support/test_session.hpp"

namespace drover::test {
namespace {

// A page whose first reader blocks until it is released: stops a put between claim and publication. One at a time.
class HeldPage {
 public:
  HeldPage() {
    ::mprotect(page_.data(), page_.size(), PROT_NONE);
    first_byte = page_.data();
    was_touched = false;
    may_go = false;
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
  [[nodiscard]] static bool is_touched() { return was_touched; }
  static void let_go() { may_go = true; }

 private:
  static constexpr std::size_t kBytes = 4096;

  static void hold(int signal, siginfo_t* info, void*) {
    const auto* const address = static_cast<const std::byte*>(info->si_addr);
    if (address < first_byte || address >= first_byte + kBytes) {
      ::signal(signal, SIG_DFL);  // a real fault occurs again at once
      return;
    }
    was_touched = true;
    while (!may_go) ::usleep(100);
    ::mprotect(first_byte, kBytes, PROT_READ);
  }

  static inline std::atomic<std::byte*> first_byte;
  static inline std::atomic<bool> was_touched;
  static inline std::atomic<bool> may_go;
  Mapping page_ = Mapping::anonymous(kBytes);
  struct sigaction before_{};
};

// One producer stopped in its put, and three waiters for the end of a closed queue.
class Ending {
 public:
  // The time from the end of the put until all waits have returned.
  std::chrono::nanoseconds play() {
    std::thread putter([&] { EXPECT_EQ(queue_.put(page_.bytes().first(8)), PutResult::put); });
    EXPECT_TRUE(eventually(HeldPage::is_touched));
    queue_.close();
    std::vector<std::thread> consumers;
    for (Queue& mine : queues_) consumers.emplace_back([this, &mine] { consume(mine); });
    const auto& head = layout_for<ipc::RingHead>(membership_, queue_.handle());
    EXPECT_TRUE(eventually([&] { return has_sleeper(head.record_ready); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that the others probably sleep too
    HeldPage::let_go();
    putter.join();
    const auto begin = Clock::now();
    for (auto& consumer : consumers) consumer.join();
    return Clock::now() - begin;
  }
  [[nodiscard]] int got() const { return got_; }
  [[nodiscard]] int ended() const { return ended_; }

 private:
  using Clock = std::chrono::steady_clock;

  void consume(Queue& mine) {
    Message message;
    const GetResult result = mine.get(message, patient());
    if (result == GetResult::got) ++got_;
    if (result == GetResult::closed) ++ended_;
  }

  TestSession session_;
  std::shared_ptr<Membership> membership_ = session_.join();
  Queue queue_{membership_, QueueOptions{.capacity = 4}};
  // All keep it open to the end, since closing it wakes the others.
  std::array<Queue, 3> queues_{Queue(session_.join(), queue_.handle()), Queue(session_.join(), queue_.handle()),
                               Queue(session_.join(), queue_.handle())};
  HeldPage page_;
  std::atomic<int> got_ = 0;
  std::atomic<int> ended_ = 0;
};

// A waiter that is not woken checks again after kLongestSleep, so at least one round must be faster.
TEST(QueueClose, its_last_record_wakes_all_that_wait_for_the_end) {
  std::chrono::nanoseconds fastest = std::chrono::hours(1);
  for (int round = 0; round < 8; ++round) {
    Ending ending;
    fastest = std::min(fastest, ending.play());
    EXPECT_EQ(ending.got(), 1);
    EXPECT_EQ(ending.ended(), 2);
  }
  EXPECT_LT(fastest, ipc::kLongestSleep / 2);
}

}  // namespace
}  // namespace drover::test
