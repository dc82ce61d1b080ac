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

TEST(Lock, waiter_gets_it_when_it_is_released) {
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

TEST(Lock, force_release_frees_it_whoever_holds_it) {
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

TEST(Lock, acquiring_it_twice_for_ever_is_an_error_instead_of_a_freeze) {
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

TEST(Lock, end_of_the_session_is_noticed_though_signals_interrupt_every_sleep) {
  TestSession session;
  Lock lock(session.join());
  Lock other(session.join(), lock.handle());
  ASSERT_EQ(lock.acquire(), LockResult::acquired);
  session.end();
  const test::Interruptions interruptions;
  const Deadline deadline = Deadline::after(10s);  // at which the session is looked at in any case
  expect_error(Errc::peer_lost, [&] { static_cast<void>(other.acquire(deadline)); });
  EXPECT_FALSE(deadline.has_passed());
  lock.release();
}

TEST(Lock, held_by_a_participant_that_cannot_be_is_an_error_instead_of_a_freeze) {
  TestSession session;
  const auto membership = session.join();
  Lock lock(membership);
  auto& cell = test::layout_for<CellLockLayout>(membership, lock.handle());
  cell.word = lock_word::stamp_of({.owner = kMaxParticipants + 1, .thread = 1});
  expect_error(Errc::corrupt, [&] { static_cast<void>(lock.acquire()); }, {"1024"});
}

TEST(Lock, release_if_own_leaves_what_is_not_its_own) {
  TestSession session;
  const auto membership = session.join();
  Lock lock(membership);
  const auto dead = session.join();
  Lock theirs(dead, lock.handle());
  ASSERT_EQ(theirs.acquire(), LockResult::acquired);
  EXPECT_FALSE(lock.release_if_own());
  session.bury(dead->self());
  std::thread([&] {  // has no number; nor has its child, not even as a participant
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

// Made before the thread has a number, so destroyed after the number was given back.
struct ReleaseAtTheEnd {
  Lock* lock = nullptr;
  ReleaseAtTheEnd() = default;
  ReleaseAtTheEnd(const ReleaseAtTheEnd&) = delete;
  ReleaseAtTheEnd& operator=(const ReleaseAtTheEnd&) = delete;
  ~ReleaseAtTheEnd() {
    if (lock != nullptr) lock->release_if_own();
  }
};

TEST(Lock, held_by_a_thread_local_object_is_released_at_the_end_of_the_thread) {
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

TEST(HeldLock, forgives_a_lock_that_was_released_otherwise) {
  TestSession session;
  Lock lock(session.join());
  {
    const HeldLock held(lock);
    lock.release();
  }
  EXPECT_FALSE(lock.is_held());
}

// The counter is no atomic: the thread sanitizer sees whether the lock orders its uses.
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

// Some give up: the wake-up that reaches them must not be lost for the others.
TEST(Lock, threads_that_give_up_do_not_stop_the_others) {
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

TEST(ThreadTag, differs_between_living_threads) {
  const ThreadTag mine = this_thread_tag();
  EXPECT_NE(mine, 0);
  EXPECT_EQ(this_thread_tag(), mine);
  ThreadTag first = 0;
  ThreadTag second = 0;
  std::thread outer([&] {
    first = this_thread_tag();
    std::thread([&] { second = this_thread_tag(); }).join();
  });
  outer.join();
  EXPECT_NE(first, mine);
  EXPECT_NE(second, mine);
  EXPECT_NE(first, second);
}

TEST(ThreadTag, thread_without_one_is_not_given_one_by_a_look) {
  ThreadTag before = 1;
  ThreadTag after = 0;
  std::thread([&] {
    before = known_thread_tag();
    static_cast<void>(this_thread_tag());
    after = known_thread_tag();
  }).join();
  EXPECT_EQ(before, 0);
  EXPECT_NE(after, 0);
}

TEST(CellLock, is_claimed_by_whom_it_says) {
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

TEST(CellLock, is_recovered_only_from_the_dead_and_told_once) {
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

// Places on the board.
constexpr std::size_t kInside = 0;
constexpr std::size_t kLockViolations = kInside + 1;
constexpr std::size_t kTold = kLockViolations + 1;
constexpr std::size_t kFirstCount = kTold + 1;

// Holds the lock again and again. Whoever enters without being told of a death must find nobody inside.
DROVER_PEER_BODY(hammer_lock) {
  const auto invited = test::accept_invitation(peer.channel());
  Lock lock(invited.membership, invited.handles.at(0));
  Board board(invited.membership, invited.handles.at(1));
  const std::uint64_t self = invited.membership->self();
  const std::size_t count = kFirstCount + std::stoul(peer.parameter("place"));
  for (;;) {
    const LockResult result = lock.acquire();
    const std::uint64_t before = board[kInside].exchange(self);
    if (result == LockResult::acquired && before != 0) ++board[kLockViolations];
    if (result == LockResult::acquired_after_death) ++board[kTold];
    for (int look = 0; look < 20; ++look) {
      if (board[kInside] != self) ++board[kLockViolations];
    }
    board[kInside] = 0;
    ++board[count];
    lock.release();
  }
}

TEST(LockTorture, killed_holders_and_waiters_break_neither_exclusion_nor_progress) {
  TestSession session;
  const auto membership = session.join();
  const Lock lock(membership);
  Board board(membership);
  Herd herd(session, "hammer_lock", board.after({lock.handle()}));
  for (int peer = 0; peer < 4; ++peer) herd.add();
  test::RandomPause pause;
  for (int kill = 0; kill < kKills; ++kill) {
    const std::size_t place = pause.pick(herd.size());
    const std::size_t other = (place + 1) % herd.size();
    const std::uint64_t before = board[kFirstCount + place];
    ASSERT_TRUE(eventually([&] { return board[kFirstCount + place] != before; }));
    pause();
    herd.kill(place);
    herd.bury(place);
    const std::uint64_t others = board[kFirstCount + other];
    ASSERT_TRUE(eventually([&] { return board[kFirstCount + other] != others; })) << "after kill " << kill;
    herd.replace(place);
  }
  EXPECT_EQ(board[kLockViolations], 0U);
  RecordProperty("deaths_told", static_cast<int>(board[kTold].load()));
}

}  // namespace
}  // namespace drover
