#include "base/sys.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "support/fault_seam.hpp"

namespace drover::sys {
namespace {

using test::FaultSeam;

int twice(int number) { return 2 * number; }
void* nowhere() { return nullptr; }

int interrupted_twice(int* calls) {
  ++*calls;
  if (*calls > 2) return 0;
  errno = EINTR;
  return -1;
}

TEST(Sys, call_passes_arguments_and_result_through) { EXPECT_EQ(call("twice", twice, 21), 42); }

TEST(Sys, call_without_fault_preserves_errno) {
  errno = E2BIG;
  static_cast<void>(call("twice", twice, 1));
  EXPECT_EQ(errno, E2BIG);
}

TEST(Sys, failed_call_is_not_made) {
  int calls = 0;
  const auto count = [&calls] { return ++calls; };
  const FaultSeam fail("count", EIO);
  EXPECT_EQ(call("count", count), -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(calls, 0);
}

TEST(Sys, failure_of_a_pointer_is_map_failed) {
  const FaultSeam fail("nowhere", ENOMEM);
  EXPECT_EQ(call("nowhere", nowhere), MAP_FAILED);
}

TEST(Sys, call_does_not_repeat_an_interrupted_call) {
  int calls = 0;
  EXPECT_EQ(call("interrupted", interrupted_twice, &calls), -1);
  EXPECT_EQ(calls, 1);
}

TEST(Sys, retry_repeats_while_the_call_is_interrupted) {
  int calls = 0;
  EXPECT_EQ(retry("interrupted", interrupted_twice, &calls), 0);
  EXPECT_EQ(calls, 3);
  const FaultSeam interrupt("twice", EINTR, {.times = 5});
  EXPECT_EQ(retry("twice", twice, 4), 8);
  EXPECT_EQ(interrupt.calls(), 6);
}

TEST(Sys, retry_returns_other_failures) {
  const FaultSeam fail("twice", EIO, {.times = 1});
  EXPECT_EQ(retry("twice", twice, 4), -1);
  EXPECT_EQ(errno, EIO);
}

TEST(Sys, injected_is_zero_without_a_fault) {
  EXPECT_EQ(injected("anything"), 0);
  set_fault([](const char* name) noexcept { return std::string_view(name) == "chosen" ? 7 : 0; });
  EXPECT_EQ(injected("chosen"), 7);
  EXPECT_EQ(injected("anything"), 0);
  set_fault(nullptr);
  EXPECT_EQ(injected("chosen"), 0);
}

TEST(Sys, faults_may_come_and_go_while_threads_call) {
  std::vector<std::thread> callers;
  callers.reserve(3);
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([] {
      for (int round = 0; round < 2000; ++round) {
        const int result = call("twice", twice, round);
        EXPECT_TRUE(result == 2 * round || (result == -1 && errno == EIO));
      }
    });
  }
  for (int i = 0; i < 200; ++i) const FaultSeam fail("twice", EIO);
  for (auto& caller : callers) caller.join();
}

}  // namespace
}  // namespace drover::sys
