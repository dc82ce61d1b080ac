// Locks between threads, and between processes that are killed at any instant.
#include "drover/ipc/lock.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

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
using test::patient;
using test::TestSession;

TEST(Lock, is_free_when_made_and_held_when_acquired) {
  TestSession session;
  Lock lock(session.join());
  EXPECT_FALSE(lock.is_held());
  EXPECT_EQ(lock.acquire(), LockResult::acquired);
  EXPECT_TRUE(lock.is_held());
  EXPECT_TRUE(lock.is_own());
  lock.release();
  EXPECT_FALSE(lock.is_held());
  EXPECT_FALSE(lock.is_own());
}

TEST(Lock, another_participant_waits_until_its_deadline) {
  TestSession session;
  Lock lock(session.join());
  Lock other(session.join(), lock.handle());
  ASSERT_EQ(lock.acquire(), LockResult::acquired);
  EXPECT_EQ(other.try_acquire(), LockResult::timed_out);
  EXPECT_EQ(other.acquire(Deadline::after(0s)), LockResult::timed_out);
  EXPECT_EQ(other.acquire(Deadline::after(20ms)), LockResult::timed_out);
  lock.release();
  EXPECT_EQ(other.try_acquire(), LockResult::acquired);
  other.release();
}

TEST(Lock, a_waiter_gets_the_lock_when_it_is_released) {
  TestSession session;
  Lock lock(session.join());
  ASSERT_EQ(lock.acquire(), LockResult::acquired);
  std::thread waiter([membership = session.join(), handle = lock.handle()] {
    Lock mine(membership, handle);
    EXPECT_EQ(mine.acquire(), LockResult::acquired);
    mine.release();
  });
  std::this_thread::yield();
  lock.release();
  waiter.join();
  EXPECT_FALSE(lock.is_held());
}

TEST(Lock, release_by_another_thread_or_participant_is_an_error_that_names_the_holder) {
  TestSession session;
  Lock lock(session.join());
  Lock other(session.join(), lock.handle());
  expect_error(Errc::invalid_argument, [&] { lock.release(); }, {"nobody holds it"});
  ASSERT_EQ(lock.acquire(), LockResult::acquired);
  expect_error(Errc::invalid_argument, [&] { other.release(); },
               {"of participant 1 holds it", std::to_string(::getpid()), lock.handle().to_string()});
  std::thread([&] {
    expect_error(Errc::invalid_argument, [&] { lock.release(); },
                 {"of this process holds it", "thread that acquired"});
    EXPECT_FALSE(lock.is_own());
    EXPECT_FALSE(lock.release_if_own());
  }).join();
  EXPECT_TRUE(lock.is_held());
  lock.release();
  expect_error(Errc::invalid_argument, [&] { lock.release(); });
}

TEST(Lock, force_release_frees_it_regardless_of_the_holder) {
  TestSession session;
  Lock lock(session.join());
  Lock other(session.join(), lock.handle());
  ASSERT_EQ(lock.acquire(), LockResult::acquired);
  other.force_release();
  EXPECT_FALSE(lock.is_held());
  expect_error(Errc::invalid_argument, [&] { lock.release(); });
  expect_error(Errc::invalid_argument, [&] { other.force_release(); }, {"nobody holds it"});
}

TEST(Lock, force_release_wakes_the_thread_that_acquires_twice) {
  TestSession session;
  Lock lock(session.join());
  Lock other(session.join(), lock.handle());
  ASSERT_EQ(lock.acquire(), LockResult::acquired);
  std::thread helper([&] { other.force_release(); });
  EXPECT_EQ(lock.acquire(patient()), LockResult::acquired);
  helper.join();
  lock.release();
}

TEST(Lock, acquiring_it_twice_without_a_deadline_is_an_error_not_a_hang) {
  TestSession session;
  Lock lock(session.join());
  ASSERT_EQ(lock.acquire(), LockResult::acquired);
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(lock.acquire()); }, {"already", "RLock"});
  EXPECT_EQ(lock.acquire(Deadline::after(1ms)), LockResult::timed_out);
  lock.release();
}

TEST(Lock, can_be_moved_while_held) {
  TestSession session;
  Lock lock(session.join());
  ASSERT_EQ(lock.acquire(), LockResult::acquired);
  Lock moved(std::move(lock));
  EXPECT_TRUE(moved.is_own());
  Lock assigned(session.join());
  assigned = std::move(moved);
  assigned.release();
  EXPECT_FALSE(assigned.is_held());
}

TEST(Lock, handle_of_another_kind_is_refused) {
  TestSession session;
  const auto membership = session.join();
  const Lock lock(membership);
  ObjectHandle handle = lock.handle();
  handle.kind = ObjectKind::event;
  expect_error(Errc::invalid_argument, [&] { const Lock wrong(membership, handle); }, {"event"});
}

TEST(Lock, waiting_ends_with_an_error_when_the_session_is_over) {
  TestSession session;
  Lock lock(session.join());
  Lock other(session.join(), lock.handle());
  ASSERT_EQ(lock.acquire(), LockResult::acquired);
  std::thread ender([&] { session.end(); });
  expect_error(Errc::peer_lost, [&] { static_cast<void>(other.acquire()); });
  ender.join();
  lock.release();
}

TEST(Lock, end_of_the_session_is_noticed_despite_signals_in_every_sleep) {
  TestSession session;
  Lock lock(session.join());
  Lock other(session.join(), lock.handle());
  ASSERT_EQ(lock.acquire(), LockResult::acquired);
  session.end();
  const test::Interruptions interruptions;
  const Deadline deadline = Deadline::after(10s);  // at which the session is checked in any case
  expect_error(Errc::peer_lost, [&] { static_cast<void>(other.acquire(deadline)); });
  EXPECT_FALSE(deadline.has_passed());
  lock.release();
}

TEST(Lock, impossible_holder_is_an_error_not_a_hang) {
  TestSession session;
  const auto membership = session.join();
  Lock lock(membership);
  auto& cell = test::layout_for<CellLockLayout>(membership, lock.handle());
  cell.word = lock_word::stamp_of({.owner = kMaxParticipants + 1, .thread = 1});
  expect_error(Errc::corrupt, [&] { static_cast<void>(lock.acquire()); }, {"1024"});
}

TEST(Lock, release_if_own_leaves_the_lock_of_another_thread) {
  TestSession session;
  const auto membership = session.join();
  Lock lock(membership);
  const auto dead = session.join();
  Lock theirs(dead, lock.handle());
  ASSERT_EQ(theirs.acquire(), LockResult::acquired);
  EXPECT_FALSE(lock.release_if_own());
  session.recover(dead->self());
  std::thread([&] {  // has no number; nor has its child, which is not even a participant
    EXPECT_FALSE(lock.release_if_own());
    const pid_t child = ::fork();
    if (child == 0) ::_exit(lock.release_if_own() ? 1 : 0);
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  })
      .join();
  EXPECT_EQ(lock.acquire(), LockResult::acquired_after_death);
  EXPECT_TRUE(lock.release_if_own());
  EXPECT_FALSE(lock.release_if_own());
}

// Made before the thread has a number, so destroyed after the number is returned.
struct ReleaseAtTheEnd {
  Lock* lock = nullptr;
  ReleaseAtTheEnd() = default;
  ReleaseAtTheEnd(const ReleaseAtTheEnd&) = delete;
  ReleaseAtTheEnd& operator=(const ReleaseAtTheEnd&) = delete;
  ~ReleaseAtTheEnd() {
    if (lock != nullptr) lock->release_if_own();
  }
};

TEST(Lock, a_lock_held_by_a_thread_local_object_is_released_at_the_end_of_the_thread) {
  TestSession session;
  Lock lock(session.join());
  std::thread([&] {
    static thread_local ReleaseAtTheEnd holder;
    holder.lock = &lock;
    EXPECT_EQ(lock.acquire(), LockResult::acquired);
  }).join();
  EXPECT_FALSE(lock.is_held());
}

TEST(HeldLock, releases_at_the_end_of_its_scope) {
  TestSession session;
  Lock lock(session.join());
  {
    const HeldLock held(lock);
    EXPECT_TRUE(held.is_held());
    EXPECT_EQ(held.result(), LockResult::acquired);
    EXPECT_TRUE(lock.is_held());
  }
  EXPECT_FALSE(lock.is_held());
}

TEST(HeldLock, holds_nothing_after_a_timeout_a_move_or_a_release) {
  TestSession session;
  Lock lock(session.join());
  Lock other(session.join(), lock.handle());
  HeldLock held(lock);
  {
    const HeldLock late(other, Deadline::after(1ms));
    EXPECT_FALSE(late.is_held());
    EXPECT_EQ(late.result(), LockResult::timed_out);
  }
  EXPECT_TRUE(lock.is_held());
  HeldLock moved(std::move(held));
  EXPECT_FALSE(held.is_held());  // NOLINT(bugprone-use-after-move): the state after a move is what is tested
  moved.release();
  EXPECT_FALSE(moved.is_held());
  EXPECT_FALSE(lock.is_held());
}

TEST(HeldLock, tolerates_a_lock_that_was_released_directly) {
  TestSession session;
  Lock lock(session.join());
  {
    const HeldLock held(lock);
    lock.release();
  }
  EXPECT_FALSE(lock.is_held());
}

// The counter is not atomic: the thread sanitizer checks that the lock orders its uses.
TEST(Lock, threads_exclude_each_other) {
  TestSession session;
  const Lock lock(session.join());
  std::int64_t counter = 0;
  test::run_threads(session, 4, [&](const std::shared_ptr<Membership>& membership, int) {
    Lock mine(membership, lock.handle());
    for (int round = 0; round < kRounds; ++round) {
      const HeldLock held(mine);
      ++counter;
    }
  });
  EXPECT_EQ(counter, std::int64_t{4} * kRounds);
}

// Some time out: the wake-up that reaches them must not be lost for the others.
TEST(Lock, threads_that_time_out_do_not_stop_the_others) {
  TestSession session;
  const Lock lock(session.join());
  std::int64_t counter = 0;
  std::atomic<std::int64_t> successes = 0;
  test::run_threads(session, 4, [&](const std::shared_ptr<Membership>& membership, int index) {
    Lock mine(membership, lock.handle());
    for (int round = 0; round < kRounds; ++round) {
      const HeldLock held(mine, index % 2 == 0 ? Deadline::never() : Deadline::after(30us));
      if (!held.is_held()) continue;
      ++counter;
      ++successes;
    }
  });
  EXPECT_EQ(counter, successes);
  EXPECT_GE(counter, std::int64_t{2} * kRounds);
}

TEST(Lock, threads_share_one_handle) {
  TestSession session;
  Lock lock(session.join());
  std::int64_t counter = 0;
  test::run_threads(session, 4, [&](const std::shared_ptr<Membership>&, int) {
    for (int round = 0; round < kRounds; ++round) {
      const HeldLock held(lock);
      ++counter;
    }
  });
  EXPECT_EQ(counter, std::int64_t{4} * kRounds);
}

DROVER_PEER_BODY(hammer_lock) {
  test::hammer<Lock>(peer, [](const Lock&, std::uint32_t) { return true; });
}

TEST(LockTorture, killed_holders_and_waiters_break_neither_exclusion_nor_progress) {
  test::torture_lock<Lock>("hammer_lock", 4, kKills);
}

}  // namespace
}  // namespace drover::ipc
