// The cell lock alone: claims, releases and recovery.
#include "ipc/wake/cell_lock.hpp"

#include <gtest/gtest.h>

#include "support/test_session.hpp"

namespace drover::ipc {
namespace {

using test::TestSession;

TEST(CellLock, names_its_holder) {
  TestSession session;
  const auto membership = session.join();
  const LockHolder seven{.owner = 7, .thread = 1};
  CellLockLayout cell{};
  EXPECT_EQ(holder_of(cell), kNobody);
  {
    const CellGuard guard(cell, *membership);
    EXPECT_EQ(holder_of(cell), membership->self());
    EXPECT_TRUE(is_held_by_this_thread(cell, *membership));
    EXPECT_EQ(try_claim(cell, seven), LockResult::timed_out);
  }
  EXPECT_EQ(holder_of(cell), kNobody);
  EXPECT_EQ(try_claim(cell, seven), LockResult::acquired);
  EXPECT_EQ(full_holder_of(cell), seven);
}

TEST(CellLock, is_recovered_only_from_the_dead_and_reports_that_once) {
  const LockHolder seven{.owner = 7, .thread = 1};
  const LockHolder eight{.owner = 8, .thread = 1};
  CellLockLayout cell{};
  EXPECT_EQ(claim_from_dead(cell, eight), LockResult::timed_out);
  ASSERT_EQ(try_claim(cell, seven), LockResult::acquired);
  EXPECT_EQ(claim_from_dead(cell, eight), LockResult::timed_out);
  EXPECT_FALSE(recover(cell, 8));
  EXPECT_EQ(full_holder_of(cell), seven);
  EXPECT_TRUE(recover(cell, 7));
  EXPECT_FALSE(recover(cell, 7));
  EXPECT_EQ(claim_from_dead(cell, eight), LockResult::acquired_after_death);
  EXPECT_TRUE(free_own(cell, eight));
  EXPECT_EQ(claim_from_dead(cell, eight), LockResult::timed_out);
  EXPECT_EQ(try_claim(cell, eight), LockResult::acquired);
}

TEST(CellLock, takes_the_largest_numbers) {
  CellLockLayout cell{};
  const LockHolder largest{.owner = kMaxParticipants, .thread = 0xFFFF};
  EXPECT_EQ(try_claim(cell, largest), LockResult::acquired);
  EXPECT_EQ(full_holder_of(cell), largest);
  EXPECT_FALSE(free_own(cell, {.owner = kMaxParticipants, .thread = 0xFFFE}));
  EXPECT_TRUE(free_own(cell, largest));
}

}  // namespace
}  // namespace drover::ipc
