// Polls on a thread that exists only while it is needed.
#include "tensor/memory/backoff_poller.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "support/build.hpp"

namespace drover::tensor {
namespace {

using namespace std::chrono_literals;

void wait_for(const std::atomic<int>& count, int least) {
  while (count < least) std::this_thread::sleep_for(1ms);
}

TEST(BackoffPoller, polls_until_false_and_again_after_start) {
  std::atomic<int> polls{0};
  BackoffPoller poller(2ms, [&] { return ++polls % 3 != 0; });
  EXPECT_EQ(polls, 0);
  poller.start();
  wait_for(polls, 3);
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(polls, 3) << "the poll returned false";
  poller.start();
  wait_for(polls, 6);
}

TEST(BackoffPoller, polls_after_the_last_of_many_starts) {
  std::atomic<int> asked{0};
  std::atomic<int> seen{0};
  BackoffPoller poller(1ms, [&] {
    seen = asked.load();
    return false;
  });
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        ++asked;
        poller.start();
        if (round % 50 == 0) std::this_thread::sleep_for(2ms);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  wait_for(seen, 800);
}

TEST(BackoffPoller, start_interrupts_a_long_interval) {
  std::atomic<int> polls{0};
  BackoffPoller poller(20ms, [&] { return ++polls < 1000; });
  poller.start();
  wait_for(polls, 4);  // by now the interval is many periods
  for (int round = 0; round < 5; ++round) {
    const int before = polls;
    poller.start();
    wait_for(polls, before + 1);
  }
}

TEST(BackoffPoller, stop_returns_at_once_and_prevents_polls) {
  std::atomic<int> polls{0};
  BackoffPoller poller(1h, [&] { return ++polls > 0; });
  poller.start();
  poller.stop();
  poller.start();
  EXPECT_EQ(polls, 0);
}

// The thread sanitizer of GCC 13 and of LLVM 16 forgets the parent's threads in a forked child, and ends a child that
// detaches one ("CHECK failed: sanitizer_thread_registry.cpp"). The older one of GCC 12 does not.
TEST(BackoffPoller, stop_returns_in_a_forked_child) {
  if (test::kIsThreadSanitized) GTEST_SKIP() << "the thread sanitizer ends a forked child that detaches a thread";
  BackoffPoller poller(1h, [] { return true; });
  poller.start();
  const pid_t child = ::fork();
  if (child == 0) {
    poller.stop();
    ::_exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace drover::tensor
