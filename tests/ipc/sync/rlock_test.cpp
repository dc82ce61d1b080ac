// Recursive locks between threads, and between processes that are killed at any instant.
#include "drover/ipc/lock.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "ipc/sync/lock_torture.hpp"
#include "ipc/sync/sync_support.hpp"
#include "ipc/wake/cell_lock.hpp"
#include "support/expect_error.hpp"

namespace drover::ipc {
namespace {

using namespace std::chrono_literals;
using test::expect_error;
using test::kKills;
using test::kRounds;
using test::TestSession;

TEST(RLock, is_free_when_released_as_often_as_acquired) {
  TestSession session;
  RLock lock(session.join());
  RLock other(session.join(), lock.handle());
  EXPECT_EQ(lock.depth(), 0U);
  for (std::uint32_t depth = 1; depth <= 3; ++depth) {
    EXPECT_EQ(lock.acquire(), LockResult::acquired);
    EXPECT_EQ(lock.depth(), depth);
  }
  EXPECT_EQ(lock.try_acquire(), LockResult::acquired);
  EXPECT_EQ(other.depth(), 0U);
  for (std::uint32_t depth = 4; depth >= 1; --depth) {
    EXPECT_EQ(lock.depth(), depth);
    EXPECT_EQ(other.try_acquire(), LockResult::timed_out);
    lock.release();
  }
  EXPECT_FALSE(lock.is_held());
  EXPECT_EQ(other.acquire(), LockResult::acquired);
  EXPECT_EQ(other.depth(), 1U);
  other.release();
}

TEST(RLock, another_thread_of_the_same_handle_waits) {
  TestSession session;
  RLock lock(session.join());
  ASSERT_EQ(lock.acquire(), LockResult::acquired);
  std::thread([&] {
    EXPECT_EQ(lock.try_acquire(), LockResult::timed_out);
    EXPECT_EQ(lock.acquire(Deadline::after(5ms)), LockResult::timed_out);
    EXPECT_FALSE(lock.is_own());
    EXPECT_TRUE(lock.is_held());
  }).join();
  lock.release();
}

TEST(RLock, release_by_another_than_the_holder_is_an_error) {
  TestSession session;
  RLock lock(session.join());
  RLock other(session.join(), lock.handle());
  expect_error(Errc::invalid_argument, [&] { lock.release(); }, {"nobody holds it", "rlock"});
  ASSERT_EQ(lock.acquire(), LockResult::acquired);
  expect_error(Errc::invalid_argument, [&] { other.release(); }, {"of participant 1 holds it"});
  std::thread([&] {
    expect_error(Errc::invalid_argument, [&] { lock.release(); }, {"of this process holds it"});
  }).join();
  EXPECT_FALSE(other.release_if_own());
  EXPECT_TRUE(lock.release_if_own());
  EXPECT_FALSE(lock.is_held());
}

TEST(RLock, can_be_held_for_a_scope_within_a_scope) {
  TestSession session;
  RLock lock(session.join());
  {
    const HeldLock outer(lock);
    {
      const HeldLock inner(lock);
      EXPECT_EQ(lock.depth(), 2U);
    }
    EXPECT_EQ(lock.depth(), 1U);
  }
  EXPECT_FALSE(lock.is_held());
}

TEST(RLock, depth_of_an_earlier_holder_is_forgotten) {
  TestSession session;
  auto leaver = session.join();
  RLock lock(session.join());
  {
    RLock theirs(leaver, lock.handle());
    ASSERT_EQ(theirs.acquire(), LockResult::acquired);
    ASSERT_EQ(theirs.acquire(), LockResult::acquired);
  }
  session.recover(leaver->self());
  EXPECT_EQ(lock.acquire(), LockResult::acquired_after_death);
  EXPECT_EQ(lock.depth(), 1U);
  EXPECT_EQ(lock.acquire(), LockResult::acquired);  // reported once
  lock.release();
  lock.release();
  EXPECT_FALSE(lock.is_held());
}

TEST(RLock, more_acquisitions_than_can_be_counted_are_an_error) {
  TestSession session;
  const auto membership = session.join();
  RLock lock(membership);
  ASSERT_EQ(lock.acquire(), LockResult::acquired);
  const OpenObject object = membership->open(lock.handle());
  auto& cell = *reinterpret_cast<CellLockLayout*>(layout_of(object.data));
  cell.depth = 0xFFFF'FFFF;
  expect_error(Errc::limit_reached, [&] { static_cast<void>(lock.acquire()); }, {"4294967295"});
  EXPECT_TRUE(lock.is_own());
}

TEST(RLock, waiting_ends_with_an_error_when_the_session_is_over) {
  TestSession session;
  RLock lock(session.join());
  RLock other(session.join(), lock.handle());
  ASSERT_EQ(lock.acquire(), LockResult::acquired);
  std::thread ender([&] { session.end(); });
  expect_error(Errc::peer_lost, [&] { static_cast<void>(other.acquire()); });
  ender.join();
  lock.release();
}

TEST(RLock, threads_exclude_each_other_at_any_depth) {
  TestSession session;
  const RLock lock(session.join());
  std::int64_t counter = 0;
  test::run_threads(session, 4, [&](const std::shared_ptr<Membership>& membership, int) {
    RLock mine(membership, lock.handle());
    for (int round = 0; round < kRounds; ++round) {
      const HeldLock held(mine);
      ++counter;
      const HeldLock again(mine);
      ++counter;
    }
  });
  EXPECT_EQ(counter, std::int64_t{8} * kRounds);
}

DROVER_PEER_BODY(hammer_rlock) {
  test::hammer<RLock>(peer, [](RLock& lock, std::uint32_t round) {
    bool is_right = true;
    const std::uint32_t depth = 1 + round % 4;
    for (std::uint32_t level = 1; level < depth; ++level) is_right &= lock.acquire() == LockResult::acquired;
    is_right &= lock.depth() == depth;
    for (std::uint32_t level = 1; level < depth; ++level) lock.release();
    return is_right;
  });
}

TEST(RLockTorture, killed_holders_and_waiters_break_neither_exclusion_nor_progress) {
  test::torture_lock<RLock>("hammer_rlock", 3, kKills);
}

}  // namespace
}  // namespace drover::ipc
