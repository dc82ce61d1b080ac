#include "drover/base/clock.hpp"

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>
#include <thread>

#include <gtest/gtest.h>

namespace drover {
namespace {

using namespace std::chrono_literals;

TEST(Deadline, never_does_not_pass) {
  const auto deadline = Deadline::never();
  EXPECT_TRUE(deadline.is_never());
  EXPECT_FALSE(deadline.has_passed());
  EXPECT_EQ(deadline.remaining(), std::chrono::nanoseconds::max());
  EXPECT_EQ(deadline.poll_timeout(), -1);
}

TEST(Deadline, zero_and_negative_durations_have_already_passed) {
  for (const auto duration : {0ns, -1ns, std::chrono::nanoseconds::min()}) {
    const auto deadline = Deadline::after(duration);
    EXPECT_TRUE(deadline.has_passed());
    EXPECT_EQ(deadline.remaining(), 0ns);
    EXPECT_EQ(deadline.poll_timeout(), 0);
  }
}

TEST(Deadline, duration_beyond_the_range_never_passes) {
  EXPECT_TRUE(Deadline::after(std::chrono::nanoseconds::max()).is_never());
}

TEST(Deadline, longest_duration_of_any_unit_never_passes) {
  EXPECT_TRUE(Deadline::after(std::chrono::hours::max()).is_never());
  EXPECT_TRUE(Deadline::after(std::chrono::minutes::max()).is_never());
  EXPECT_TRUE(Deadline::after(std::chrono::seconds::max()).is_never());
  EXPECT_TRUE(Deadline::after(std::chrono::milliseconds::max()).is_never());
  EXPECT_TRUE(Deadline::after(std::chrono::duration<double>(1e300)).is_never());
  EXPECT_TRUE(Deadline::after(std::chrono::duration<double>(std::numeric_limits<double>::infinity())).is_never());
  EXPECT_TRUE(Deadline::after(std::chrono::hours::min()).has_passed());
}

TEST(Duration, converts_what_fits_exactly) {
  EXPECT_EQ(Duration(), 0ns);
  EXPECT_EQ(Duration(3h), 3h);
  EXPECT_EQ(Duration(-5ms), -5ms);
  EXPECT_EQ(Duration(std::chrono::duration<double>(1.5)), 1500ms);
  EXPECT_EQ(Duration(std::chrono::duration<std::int64_t, std::pico>(7000)), 7ns);
}

TEST(Duration, saturates_instead_of_overflowing) {
  EXPECT_TRUE(Duration(std::chrono::hours::max()).is_forever());
  EXPECT_TRUE(Duration(std::chrono::duration<std::uint64_t>::max()).is_forever());
  EXPECT_TRUE(Duration(std::chrono::duration<double>(1e300)).is_forever());
  EXPECT_FALSE(Duration(std::chrono::hours(24 * 365 * 100)).is_forever());
  EXPECT_EQ(Duration(std::chrono::hours::min()), std::chrono::nanoseconds::min());
  EXPECT_EQ(Duration(std::chrono::duration<double>(-1e300)), std::chrono::nanoseconds::min());
  EXPECT_EQ(Duration(std::chrono::duration<double>(std::numeric_limits<double>::quiet_NaN())), 0ns);
}

TEST(Deadline, long_duration_is_clamped_for_poll) {
  const auto deadline = Deadline::after(24h * 365);
  EXPECT_FALSE(deadline.is_never());
  EXPECT_FALSE(deadline.has_passed());
  EXPECT_EQ(deadline.poll_timeout(), std::numeric_limits<int>::max());
}

TEST(Deadline, moment_before_the_epoch_has_passed) {
  const auto deadline = Deadline::at(Clock::time_point::min());
  EXPECT_TRUE(deadline.has_passed());
  EXPECT_EQ(deadline.remaining(), 0ns);
  EXPECT_EQ(deadline.poll_timeout(), 0);
}

TEST(Deadline, poll_timeout_is_rounded_up_to_avoid_spinning) {
  const auto deadline = Deadline::at(Clock::now() + 1h);
  const auto left = std::chrono::milliseconds(deadline.poll_timeout());
  EXPECT_GE(left, deadline.remaining());
}

TEST(Deadline, deadline_passes_and_not_before_its_time) {
  const auto begin = Clock::now();
  const auto deadline = Deadline::after(2ms);
  EXPECT_GE(deadline.moment(), begin + 2ms);
  while (!deadline.has_passed()) std::this_thread::sleep_for(100us);
  EXPECT_GE(Clock::now() - begin, 2ms);
  EXPECT_EQ(deadline.remaining(), 0ns);
}

TEST(Deadline, remaining_never_grows) {
  const auto deadline = Deadline::after(1h);
  auto last = deadline.remaining();
  for (int i = 0; i < 1000; ++i) {
    const auto now = deadline.remaining();
    ASSERT_LE(now, last);
    last = now;
  }
}

}  // namespace
}  // namespace drover
