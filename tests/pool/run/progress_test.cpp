// The progress bar of many tasks.
#include "drover/pool/results.hpp"

#include <unistd.h>

#include <chrono>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "support/redirected.hpp"

namespace drover::pool {
namespace {

constexpr std::size_t kWide = 200;

// The progress after `seconds`.
std::string text_after(double seconds, Progress progress, std::size_t columns = kWide) {
  const auto passed = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  return describe_progress("work", progress, progress.began + passed, columns);
}

TEST(DescribeProgress, a_known_total_has_a_bar_and_the_time_left) {
  EXPECT_EQ(text_after(2, {.done = 512, .total = 1024}),
            "work  [############............]   50 %  512/1024  256.0/s  0:02 left");
  EXPECT_EQ(text_after(0, {.done = 0, .total = 10}), "work  [........................]    0 %  0/10  0.0/s");
}

TEST(DescribeProgress, the_last_report_has_the_total_time) {
  EXPECT_EQ(text_after(61, {.done = 10, .failed = 2, .total = 10, .is_over = true}),
            "work  [########################]  100 %  10/10  2 failed  0.2/s  in 1:01");
}

TEST(DescribeProgress, without_a_total_it_shows_the_count) {
  EXPECT_EQ(text_after(10, {.done = 20}), "work  20 done  2.0/s");
  EXPECT_EQ(text_after(10, {.done = 20, .failed = 1, .is_over = true}), "work  20 done  1 failed  2.0/s  in 0:10");
}

TEST(DescribeProgress, rates_and_times_have_suitable_units) {
  EXPECT_NE(text_after(1, {.done = 3100}).find("3.1 k/s"), std::string::npos);
  EXPECT_NE(text_after(1, {.done = 2'500'000}).find("2.5 M/s"), std::string::npos);
  EXPECT_NE(text_after(3599, {.is_over = true}).find("in 59:59"), std::string::npos);
  EXPECT_NE(text_after(3725, {.is_over = true}).find("in 1:02:05"), std::string::npos);
}

TEST(DescribeProgress, only_finished_work_shows_a_hundred_per_cent) {
  EXPECT_NE(text_after(1, {.done = 9999, .total = 10000}).find("  99 %"), std::string::npos);
  EXPECT_NE(text_after(1, {.done = 12, .total = 10}).find(" 100 %  12/10"), std::string::npos);
}

TEST(DescribeProgress, invalid_times_are_shown_without_harm) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_NE(text_after(1e6, {.done = 1, .total = kMost}).find("more than a year left"), std::string::npos);
  EXPECT_NE(text_after(-5, {.done = 1, .is_over = true}).find("in 0:00"), std::string::npos);
}

TEST(DescribeProgress, it_is_truncated_to_the_columns) {
  EXPECT_EQ(text_after(1, {.done = 1, .total = 2}, 10), "work  [###");
  EXPECT_EQ(text_after(1, {.done = 1, .total = 2}, 0), "");
}

TEST(ProgressBar, without_a_terminal_it_prints_one_line_at_the_end) {
  test::Redirected error(STDERR_FILENO);
  const auto bar = progress_bar("squares");
  bar({.done = 1, .total = 2});
  bar({.done = 2, .total = 2});
  bar({.done = 2, .total = 2, .is_over = true});
  const std::string text = error.read_rest();
  EXPECT_TRUE(text.starts_with("squares  [########################]  100 %  2/2")) << text;
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

}  // namespace
}  // namespace drover::pool
