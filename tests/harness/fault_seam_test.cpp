#include "support/fault_seam.hpp"

#include <cerrno>
#include <optional>

#include <gtest/gtest.h>

#include "base/sys.hpp"

namespace drover::test {
namespace {

int answer() { return 42; }
int ask(const char* name) { return sys::call(name, answer); }

TEST(FaultSeam, every_call_of_the_name_fails_while_it_lives) {
  {
    const FaultSeam fail("probe", ENOSPC);
    for (int i = 0; i < 3; ++i) {
      errno = 0;
      EXPECT_EQ(ask("probe"), -1);
      EXPECT_EQ(errno, ENOSPC);
    }
    EXPECT_EQ(ask("other"), 42);
    EXPECT_EQ(fail.calls(), 3);
    EXPECT_EQ(fail.strikes(), 3);
  }
  EXPECT_EQ(ask("probe"), 42);
}

TEST(FaultSeam, only_the_chosen_calls_fail) {
  const FaultSeam fail("probe", EIO, {.nth = 2, .times = 2});
  EXPECT_EQ(ask("probe"), 42);
  EXPECT_EQ(ask("probe"), -1);
  EXPECT_EQ(ask("probe"), -1);
  EXPECT_EQ(ask("probe"), 42);
  EXPECT_EQ(fail.calls(), 4);
  EXPECT_EQ(fail.strikes(), 2);
}

TEST(FaultSeam, oldest_of_several_seams_for_one_call_strikes_first) {
  const FaultSeam first("probe", EIO, {.times = 1});
  const FaultSeam second("probe", EBUSY);
  EXPECT_EQ(ask("probe"), -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(ask("probe"), -1);
  EXPECT_EQ(errno, EBUSY);
  EXPECT_EQ(second.calls(), 1);
}

TEST(FaultSeam, end_of_one_seam_leaves_the_others_in_place) {
  const FaultSeam outer("outer", EIO);
  std::optional<FaultSeam> inner;
  inner.emplace("inner", EBUSY);
  EXPECT_EQ(ask("inner"), -1);
  inner.reset();
  EXPECT_EQ(ask("inner"), 42);
  EXPECT_EQ(ask("outer"), -1);
}

}  // namespace
}  // namespace drover::test
