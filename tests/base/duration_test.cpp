#include "base/duration.hpp"

#include <gtest/gtest.h>

namespace drover {
namespace {

using namespace std::chrono_literals;

TEST(Duration, is_shown_in_its_two_largest_units) {
  EXPECT_EQ(format_duration(40ms), "40 ms");
  EXPECT_EQ(format_duration(1549ms), "1.5 s");
  EXPECT_EQ(format_duration(9999ms), "9.9 s");
  EXPECT_EQ(format_duration(59s), "59 s");
  EXPECT_EQ(format_duration(184s), "3 min 4 s");
  EXPECT_EQ(format_duration(2h + 5min), "2 h 5 min");
  EXPECT_EQ(format_duration(76h), "3 d 4 h");
}

TEST(Duration, zero_and_negative_durations_are_zero) {
  EXPECT_EQ(format_duration(0s), "0 s");
  EXPECT_EQ(format_duration(999us), "0 s");
  EXPECT_EQ(format_duration(-5s), "0 s");
  EXPECT_EQ(format_duration(std::chrono::nanoseconds::min()), "0 s");
}

}  // namespace
}  // namespace drover
