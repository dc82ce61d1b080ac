// Looks on a thread that is there only while it is needed.
#include "tensor/memory/late_look.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace drover {
namespace {

using namespace std::chrono_literals;

void wait_for(const std::atomic<int>& count, int least) {
  while (count < least) std::this_thread::sleep_for(1ms);
}

TEST(LateLook, looks_until_there_is_nothing_more_and_again_when_it_is_begun) {
  std::atomic<int> looks{0};
  LateLook later(2ms, [&] { return ++looks % 3 != 0; });
  EXPECT_EQ(looks, 0);
  later.begin();
  wait_for(looks, 3);
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(looks, 3) << "nothing was left to look for";
  later.begin();
  wait_for(looks, 6);
}

TEST(LateLook, begun_from_many_threads_it_looks_after_the_last) {
  std::atomic<int> asked{0};
  std::atomic<int> seen{0};
  LateLook later(1ms, [&] {
    seen = asked.load();
    return false;
  });
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        ++asked;
        later.begin();
        if (round % 50 == 0) std::this_thread::sleep_for(2ms);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  wait_for(seen, 800);
}

TEST(LateLook, who_looks_seldom_is_woken_by_who_begins) {
  std::atomic<int> looks{0};
  LateLook later(20ms, [&] { return ++looks < 1000; });
  later.begin();
  wait_for(looks, 4);  // by now it sleeps for many periods
  for (int round = 0; round < 5; ++round) {
    const int before = looks;
    later.begin();
    wait_for(looks, before + 1);
  }
}

TEST(LateLook, stops_at_once_and_never_looks_again) {
  std::atomic<int> looks{0};
  LateLook later(1h, [&] { return ++looks > 0; });
  later.begin();
  later.stop();
  later.begin();
  EXPECT_EQ(looks, 0);
}

TEST(LateLook, a_forked_child_has_no_such_thread_and_ends) {
  LateLook later(1h, [] { return true; });
  later.begin();
  const pid_t child = ::fork();
  if (child == 0) {
    later.stop();
    ::_exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace drover
