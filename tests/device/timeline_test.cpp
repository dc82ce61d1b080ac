#include "drover/device/timeline.hpp"

#include <thread>

#include <gtest/gtest.h>

namespace drover::device {

using std::chrono::milliseconds;

TEST(Timeline, values_are_compared_cyclically_as_devices_do) {
  EXPECT_TRUE(has_reached(5, 5));
  EXPECT_TRUE(has_reached(6, 5));
  EXPECT_FALSE(has_reached(4, 5));
  EXPECT_TRUE(has_reached(1, UINT64_MAX)) << "a wrapped counter is ahead";
  EXPECT_FALSE(has_reached(0x8000'0000'0000'0000 | 5, 5)) << "2^63 above counts as below";
}

TEST(Timeline, poison_releases_waiters_of_every_real_value) {
  for (const std::uint64_t value : {std::uint64_t{1}, std::uint64_t{1} << 40, kTimelinePoison - 1}) {
    EXPECT_TRUE(has_reached(kTimelinePoison, value)) << value;
  }
}

TEST(Timeline, wait_ends_at_its_deadline_or_when_the_value_is_stored) {
  const TimelineWord word{3};
  EXPECT_EQ(timeline_wait(word, 3, Deadline::after({})), WaitResult::done);
  EXPECT_EQ(timeline_wait(word, 4, Deadline::after(milliseconds(3))), WaitResult::timed_out);
  EXPECT_EQ(timeline_wait(word, 4, Deadline::after({})), WaitResult::timed_out);
}

TEST(Timeline, store_wakes_waiting_threads) {
  TimelineWord word{0};
  std::thread waiter([&] { EXPECT_EQ(timeline_wait(word, 10, Deadline::never()), WaitResult::done); });
  for (std::uint64_t value = 1; value <= 10; ++value) timeline_store(word, value);
  waiter.join();
}

TEST(Timeline, store_that_wakes_no_waiter_is_seen_too) {
  TimelineWord word{0};
  std::thread waiter([&] { EXPECT_EQ(timeline_wait(word, 1, Deadline::never()), WaitResult::done); });
  std::this_thread::sleep_for(milliseconds(5));
  word.store(1);  // like a device
  waiter.join();
}

TEST(Timeline, change_of_only_the_upper_half_is_seen) {
  TimelineWord word{0};
  std::thread waiter(
      [&] { EXPECT_EQ(timeline_wait(word, std::uint64_t{1} << 32, Deadline::never()), WaitResult::done); });
  std::this_thread::sleep_for(milliseconds(2));
  timeline_store(word, std::uint64_t{1} << 32);
  waiter.join();
}

}  // namespace drover::device
