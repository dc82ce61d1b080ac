// Recursive locks between threads, and between processes that are killed at any instant.
#include "drover/ipc/rlock.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "ipc/sync/sync_support.hpp"
#include "ipc/wake/cell_lock.hpp"
#include "support/expect_error.hpp"

namespace drover {
namespace {

using namespace std::chrono_literals;
using test::Board;
using test::eventually;
using test::expect_error;
using test::Herd;
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
  session.bury(leaver->self());
  EXPECT_EQ(lock.acquire(), LockResult::acquired_after_death);
  EXPECT_EQ(lock.depth(), 1U);
  EXPECT_EQ(lock.acquire(), LockResult::acquired);  // told once
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

// Places on the board.
constexpr std::size_t kInside = 0;
constexpr std::size_t kViolations = kInside + 1;
constexpr std::size_t kFirstCount = kViolations + 1;

DROVER_PEER_BODY(hammer_rlock) {
  const auto invited = test::accept_invitation(peer.channel());
  RLock lock(invited.membership, invited.handles.at(0));
  Board board(invited.membership, invited.handles.at(1));
  const std::uint64_t self = invited.membership->self();
  const std::size_t count = kFirstCount + std::stoul(peer.parameter("place"));
  for (std::uint32_t round = 0;; ++round) {
    const LockResult result = lock.acquire();
    const std::uint64_t before = board[kInside].exchange(self);
    if (result == LockResult::acquired && before != 0) ++board[kViolations];
    const std::uint32_t depth = 1 + round % 4;
    for (std::uint32_t level = 1; level < depth; ++level) {
      if (lock.acquire() != LockResult::acquired) ++board[kViolations];
    }
    if (lock.depth() != depth || board[kInside] != self) ++board[kViolations];
    for (std::uint32_t level = 1; level < depth; ++level) lock.release();
    board[kInside] = 0;
    ++board[count];
    lock.release();
  }
}

TEST(RLockTorture, killed_holders_and_waiters_break_neither_exclusion_nor_progress) {
  TestSession session;
  const auto membership = session.join();
  const RLock lock(membership);
  Board board(membership);
  Herd herd(session, "hammer_rlock", board.after({lock.handle()}));
  for (int peer = 0; peer < 3; ++peer) herd.add();
  test::RandomPause pause;
  for (int kill = 0; kill < kKills; ++kill) {
    const std::size_t place = pause.pick(herd.size());
    const std::size_t other = (place + 1) % herd.size();
    const std::uint64_t before = board[kFirstCount + place];
    ASSERT_TRUE(eventually([&] { return board[kFirstCount + place] != before; }));
    pause();
    herd.remove(place);
    const std::uint64_t others = board[kFirstCount + other];
    ASSERT_TRUE(eventually([&] { return board[kFirstCount + other] != others; })) << "after kill " << kill;
    herd.replace(place);
  }
  EXPECT_EQ(board[kViolations], 0U);
}

}  // namespace
}  // namespace drover
