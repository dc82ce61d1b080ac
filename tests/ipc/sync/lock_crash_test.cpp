// The crash tables of locks and conditions (docs/crash_tables.md): one test for each row.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/ipc/condition.hpp"
#include "drover/ipc/lock.hpp"
#include "ipc/sync/condition_layout.hpp"
#include "ipc/sync/sync_support.hpp"
#include "ipc/wake/cell_lock.hpp"
#include "ipc/wake/futex.hpp"
#include "support/expect_error.hpp"

namespace drover::ipc {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using test::has_sleeper;
using test::layout_for;
using test::patient;
using test::TestSession;
using test::Victim;

DROVER_PEER_BODY(lock_victim) {
  const auto invited = test::accept_invitation(peer.channel());
  Lock lock(invited.membership, invited.handles.at(0));
  const LockResult result = lock.acquire();
  peer.channel().send(result == LockResult::acquired_after_death ? "reported" : "acquired");
  peer.reach("holding");
  lock.release();
  peer.reach("released");
}

class LockCrash : public ::testing::Test {
 protected:
  TestSession session_;
  std::shared_ptr<Membership> membership_ = session_.join();
  Lock lock_{membership_};
  Lock other_{session_.join(), lock_.handle()};
};

TEST_F(LockCrash, a_dead_holder_is_reported_to_the_next_holder_only) {
  Victim victim(session_, "lock_victim", {lock_.handle()}, "holding");
  victim.await_death();
  EXPECT_EQ(lock_.try_acquire(), LockResult::timed_out);  // dead, but not yet recovered
  victim.recover();
  EXPECT_EQ(lock_.acquire(patient()), LockResult::acquired_after_death);
  lock_.release();
  EXPECT_EQ(lock_.acquire(patient()), LockResult::acquired);
  lock_.release();
}

TEST_F(LockCrash, all_sleeping_waiters_get_the_lock_of_a_dead_holder_in_turn) {
  Victim victim(session_, "lock_victim", {lock_.handle()}, "holding");
  victim.await_death();
  std::atomic<int> reported = 0;
  std::atomic<int> acquired = 0;
  std::vector<std::thread> waiters;
  for (int index = 0; index < 3; ++index) {
    waiters.emplace_back([&, membership = session_.join()] {
      Lock mine(membership, lock_.handle());
      const HeldLock held(mine, patient());
      if (held.result() == LockResult::acquired_after_death) ++reported;
      if (held.is_held()) ++acquired;
    });
  }
  const auto& cell = layout_for<CellLockLayout>(membership_, lock_.handle());
  EXPECT_TRUE(eventually([&] { return has_sleeper(cell); }));
  victim.recover();
  for (auto& waiter : waiters) waiter.join();
  EXPECT_EQ(reported, 1);
  EXPECT_EQ(acquired, 3);
}

TEST_F(LockCrash, a_dead_waiter_changes_nothing) {
  ASSERT_EQ(lock_.acquire(), LockResult::acquired);
  Victim victim(session_, "lock_victim", {lock_.handle()});
  const auto& cell = layout_for<CellLockLayout>(membership_, lock_.handle());
  EXPECT_TRUE(eventually([&] { return has_sleeper(cell); }));
  victim.kill();
  EXPECT_TRUE(lock_.is_own());
  lock_.release();
  EXPECT_EQ(other_.acquire(patient()), LockResult::acquired);
  other_.release();
}

// The dead waiter is the only one that the release woke.
TEST_F(LockCrash, a_waiter_that_dies_with_the_wake_up_does_not_stop_the_others) {
  ASSERT_EQ(lock_.acquire(), LockResult::acquired);
  auto& cell = layout_for<CellLockLayout>(membership_, lock_.handle());
  std::thread waiter([&] {
    EXPECT_EQ(other_.acquire(patient()), LockResult::acquired);
    other_.release();
  });
  EXPECT_TRUE(eventually([&] { return has_sleeper(cell); }));
  cell.word = 0;  // released, but the waker died before the system call
  session_.recover(session_.join()->self());
  waiter.join();
}

// The sleep is longer than a waiter's, which ends by itself.
TEST_F(LockCrash, every_death_wakes_sleepers_on_the_lock) {
  auto& cell = layout_for<CellLockLayout>(membership_, lock_.handle());
  ASSERT_EQ(lock_.acquire(), LockResult::acquired);
  std::atomic<bool> is_over = false;
  std::thread sleeper([&] {
    EXPECT_TRUE(futex_sleep(cell.word, cell.word, 20s));
    is_over = true;
  });
  EXPECT_TRUE(eventually([&] {
    session_.recover(session_.join()->self());  // again, if it came before the sleep
    return is_over.load();
  }));
  sleeper.join();
  lock_.release();
}

TEST_F(LockCrash, a_death_is_reported_again_if_the_first_to_learn_of_it_dies_too) {
  Victim first(session_, "lock_victim", {lock_.handle()}, "holding");
  first.die();
  Victim second(session_, "lock_victim", {lock_.handle()}, "holding");
  EXPECT_EQ(second.hear(), "reported");
  second.die();
  EXPECT_EQ(lock_.acquire(patient()), LockResult::acquired_after_death);
  lock_.release();
}

TEST_F(LockCrash, a_death_after_the_release_changes_nothing) {
  Victim victim(session_, "lock_victim", {lock_.handle()}, "released");
  victim.die();
  EXPECT_EQ(lock_.acquire(patient()), LockResult::acquired);
  lock_.release();
}

TEST_F(LockCrash, a_lock_passed_on_by_force_release_does_not_belong_to_the_dead) {
  Victim victim(session_, "lock_victim", {lock_.handle()}, "holding");
  victim.await_death();
  lock_.force_release();
  ASSERT_EQ(lock_.acquire(), LockResult::acquired);
  victim.recover();
  EXPECT_TRUE(lock_.is_own());
  lock_.release();
}

TEST_F(LockCrash, a_thread_that_ends_without_releasing_keeps_the_lock_while_its_process_lives) {
  std::thread([&] { EXPECT_EQ(lock_.acquire(), LockResult::acquired); }).join();
  EXPECT_EQ(other_.acquire(Deadline::after(5ms)), LockResult::timed_out);
  std::thread([&] { test::expect_error(Errc::invalid_argument, [&] { lock_.release(); }); }).join();
  session_.recover(membership_->self());
  EXPECT_EQ(other_.acquire(patient()), LockResult::acquired_after_death);
  other_.release();
}

TEST_F(LockCrash, a_thread_that_ends_without_releasing_keeps_the_lock_until_it_is_released_by_force) {
  std::thread([&] { EXPECT_EQ(lock_.acquire(), LockResult::acquired); }).join();
  EXPECT_EQ(other_.try_acquire(), LockResult::timed_out);
  other_.force_release();
  EXPECT_EQ(other_.acquire(patient()), LockResult::acquired);
  other_.release();
}

TEST_F(LockCrash, a_lock_closed_while_held_stays_held_until_its_thread_releases_it_or_its_process_ends) {
  const auto leaver = session_.join();
  for (const bool is_released : {true, false}) {
    {
      Lock theirs(leaver, lock_.handle());
      ASSERT_EQ(theirs.acquire(), LockResult::acquired);
    }
    EXPECT_EQ(lock_.try_acquire(), LockResult::timed_out);
    if (is_released) {
      Lock(leaver, lock_.handle()).release();
    } else {
      session_.recover(leaver->self());
    }
    EXPECT_EQ(lock_.acquire(), is_released ? LockResult::acquired : LockResult::acquired_after_death);
    lock_.release();
  }
}

DROVER_PEER_BODY(rlock_victim) {
  const auto invited = test::accept_invitation(peer.channel());
  RLock lock(invited.membership, invited.handles.at(0));
  for (int depth = 0; depth < 3; ++depth) static_cast<void>(lock.acquire());
  peer.reach("three deep");
  lock.release();
  lock.release();
  peer.reach("one deep");
  lock.release();
  peer.reach("released");
}

TEST(RLockCrash, a_dead_holder_frees_it_at_any_depth) {
  for (const char* const point : {"three deep", "one deep", "released"}) {
    SCOPED_TRACE(point);
    TestSession session;
    RLock lock(session.join());
    Victim victim(session, "rlock_victim", {lock.handle()}, point);
    victim.die();
    const bool was_held = std::string(point) != "released";
    EXPECT_EQ(lock.acquire(patient()), was_held ? LockResult::acquired_after_death : LockResult::acquired);
    EXPECT_EQ(lock.depth(), 1U);
    lock.release();
    EXPECT_FALSE(lock.is_held());
  }
}

TEST(RLockCrash, a_lock_closed_while_held_stays_held_until_its_process_ends) {
  TestSession session;
  RLock lock(session.join());
  const auto leaver = session.join();
  {
    RLock theirs(leaver, lock.handle());
    ASSERT_EQ(theirs.acquire(), LockResult::acquired);
  }
  EXPECT_EQ(lock.try_acquire(), LockResult::timed_out);
  session.recover(leaver->self());
  EXPECT_EQ(lock.acquire(), LockResult::acquired_after_death);
  lock.release();
}

TEST(RLockCrash, a_dead_waiter_changes_nothing) {
  TestSession session;
  const auto membership = session.join();
  RLock lock(membership);
  const HeldLock held(lock);
  const HeldLock again(lock);
  Victim victim(session, "rlock_victim", {lock.handle()});
  const auto& cell = layout_for<CellLockLayout>(membership, lock.handle());
  EXPECT_TRUE(eventually([&] { return has_sleeper(cell); }));
  victim.kill();
  EXPECT_EQ(lock.depth(), 2U);
}

// Waits once, reports when it is notified and has the lock, and stops there.
DROVER_PEER_BODY(condition_victim) {
  const auto invited = test::accept_invitation(peer.channel());
  Condition condition(invited.membership, invited.handles.at(0));
  static_cast<void>(condition.acquire());
  static_cast<void>(condition.wait());
  peer.channel().send("notified");
  peer.reach("back with the lock");
  condition.release();
  peer.reach("released");
}

// Changes the awaited state and dies before it notifies anybody.
DROVER_PEER_BODY(changing_victim) {
  const auto invited = test::accept_invitation(peer.channel());
  Condition condition(invited.membership, invited.handles.at(0));
  test::Board board(invited.membership, invited.handles.at(2));
  static_cast<void>(condition.acquire());
  board[1] = 1;
  peer.reach("changed");
  condition.notify_all();
  condition.release();
}

// Notifies and dies with the lock.
DROVER_PEER_BODY(notifying_victim) {
  const auto invited = test::accept_invitation(peer.channel());
  Condition condition(invited.membership, invited.handles.at(0));
  static_cast<void>(condition.acquire());
  condition.notify();
  peer.reach("notified another");
}

class ConditionCrash : public ::testing::Test {
 protected:
  std::vector<ObjectHandle> objects() { return {condition_.handle(), condition_.lock_handle()}; }
  // A thread that waits once, after the current waiters.
  std::thread wait_in_thread(LockResult expected) {
    const std::uint32_t before = condition_.waiting();
    std::thread thread([this, expected, membership = session_.join()] {
      Condition mine(membership, condition_.handle());
      const HeldLock held(mine);
      const ConditionResult result = mine.wait(patient());
      EXPECT_EQ(result.wait, WaitResult::done);
      EXPECT_EQ(result.lock, expected);
    });
    EXPECT_TRUE(eventually([&] { return condition_.waiting() == before + 1; }));
    return thread;
  }
  std::uint32_t acquire_and_notify() {
    const HeldLock held(condition_);
    return condition_.notify();
  }
  void await_waiting(std::uint32_t count) {
    ASSERT_TRUE(eventually([&] { return condition_.waiting() == count; }));
  }

  TestSession session_;
  std::shared_ptr<Membership> member_ = session_.join();
  Condition condition_{member_};
};

TEST_F(ConditionCrash, a_dead_waiter_leaves_its_place) {
  Victim victim(session_, "condition_victim", objects());
  await_waiting(1);
  victim.kill();
  EXPECT_EQ(condition_.waiting(), 0U);
  EXPECT_EQ(acquire_and_notify(), 0U);
  Victim first(session_, "condition_victim", objects());
  await_waiting(1);
  std::thread second = wait_in_thread(LockResult::acquired);
  first.kill();
  EXPECT_EQ(condition_.waiting(), 1U);
  EXPECT_EQ(acquire_and_notify(), 1U);  // the other waiter, although it came later
  second.join();
}

TEST_F(ConditionCrash, a_notification_of_a_dead_waiter_is_passed_on_to_the_next) {
  Victim victim(session_, "condition_victim", objects());
  await_waiting(1);
  std::thread next = wait_in_thread(LockResult::acquired);
  {
    const HeldLock held(condition_);
    EXPECT_EQ(condition_.notify(), 1U);  // the victim, which cannot have the lock
    EXPECT_EQ(condition_.waiting(), 1U);
    victim.kill();
    EXPECT_EQ(condition_.waiting(), 0U);
  }
  next.join();
}

TEST_F(ConditionCrash, a_notification_of_a_dead_last_waiter_is_not_kept_for_later) {
  Victim victim(session_, "condition_victim", objects());
  await_waiting(1);
  const HeldLock held(condition_);
  EXPECT_EQ(condition_.notify(), 1U);
  victim.kill();
  EXPECT_EQ(condition_.wait(Deadline::after(5ms)).wait, WaitResult::timed_out);
}

TEST_F(ConditionCrash, a_waiter_that_dies_with_the_lock_is_reported_to_another_waiter) {
  Victim victim(session_, "condition_victim", objects(), "back with the lock");
  await_waiting(1);
  std::thread next = wait_in_thread(LockResult::acquired_after_death);
  EXPECT_EQ(acquire_and_notify(), 1U);
  EXPECT_EQ(victim.hear(), "notified");
  victim.die();
  next.join();
}

TEST_F(ConditionCrash, all_waiters_return_after_a_death_and_one_gets_the_report) {
  Victim victim(session_, "condition_victim", objects(), "back with the lock");
  await_waiting(1);
  std::atomic<int> reported = 0;
  std::vector<std::thread> waiters;
  for (int index = 0; index < 3; ++index) {
    waiters.emplace_back([&, membership = session_.join()] {
      Condition mine(membership, condition_.handle());
      const HeldLock held(mine);
      const ConditionResult result = mine.wait(patient());
      EXPECT_EQ(result.wait, WaitResult::done);
      if (result.lock == LockResult::acquired_after_death) ++reported;
    });
  }
  await_waiting(4);
  EXPECT_EQ(acquire_and_notify(), 1U);
  victim.die();
  for (auto& waiter : waiters) waiter.join();
  EXPECT_EQ(reported, 1);
  EXPECT_EQ(condition_.waiting(), 0U);
}

// The keeper wakes the first waiter, whose predicate is not true yet.
TEST_F(ConditionCrash, changes_by_a_dead_holder_that_notified_nobody_reach_the_waiters) {
  test::Board board(session_.join());
  const auto wait_for = [&](std::size_t place) {
    const std::uint32_t before = condition_.waiting();
    std::thread thread([&, place, membership = session_.join()] {
      Condition mine(membership, condition_.handle());
      const HeldLock held(mine);
      EXPECT_EQ(mine.wait_for([&] { return board[place] == 1; }, patient()).wait, WaitResult::done);
    });
    EXPECT_TRUE(eventually([&] { return condition_.waiting() == before + 1; }));
    return thread;
  };
  std::thread first = wait_for(0);
  std::thread second = wait_for(1);
  Victim victim(session_, "changing_victim", board.after(objects()), "changed");
  victim.die();
  second.join();
  await_waiting(1);
  {
    const HeldLock held(condition_);
    board[0] = 1;
    EXPECT_EQ(condition_.notify(), 1U);
  }
  first.join();
}

// The waiter is a place without a thread, since a thread would reacquire the lock by itself.
TEST_F(ConditionCrash, an_acquisition_after_a_death_notifies_all_waiters) {
  const ConditionCore core(reinterpret_cast<std::byte*>(&layout_for<ConditionLayout>(member_, condition_.handle())));
  for (const bool is_try : {false, true}) {
    const auto place = core.take_place(member_->self());
    ASSERT_TRUE(place.has_value());
    const auto dead = session_.join();
    Condition theirs(dead, condition_.handle());
    ASSERT_EQ(theirs.acquire(), LockResult::acquired);
    session_.recover(dead->self());
    EXPECT_EQ(condition_.waiting(), 1U);
    EXPECT_EQ(is_try ? condition_.try_acquire() : condition_.acquire(), LockResult::acquired_after_death);
    EXPECT_EQ(condition_.waiting(), 0U);
    condition_.release();
    place->leave();
  }
}

TEST_F(ConditionCrash, a_notifier_that_dies_with_the_lock_has_notified) {
  std::thread waiter = wait_in_thread(LockResult::acquired_after_death);
  Victim victim(session_, "notifying_victim", objects(), "notified another");
  victim.die();
  waiter.join();
  EXPECT_EQ(condition_.waiting(), 0U);
}

TEST_F(ConditionCrash, a_death_after_the_release_changes_nothing) {
  Victim victim(session_, "condition_victim", objects(), "released");
  await_waiting(1);
  EXPECT_EQ(acquire_and_notify(), 1U);
  victim.die();
  const HeldLock held(condition_);
  EXPECT_EQ(held.result(), LockResult::acquired);
  EXPECT_EQ(condition_.wait(Deadline::after(5ms)).wait, WaitResult::timed_out);
}

}  // namespace
}  // namespace drover::ipc
