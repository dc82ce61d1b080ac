// Conditions between threads, and between processes that are killed at any instant.
#include "drover/ipc/condition.hpp"

#include <chrono>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "ipc/sync/condition_layout.hpp"
#include "ipc/sync/sync_support.hpp"
#include "support/expect_error.hpp"

namespace drover::ipc {
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

TEST(Condition, wait_without_a_notification_times_out_with_the_lock_held) {
  TestSession session;
  Condition condition(session.join());
  const HeldLock held(condition);
  for (const auto duration : {0ms, 5ms}) {
    const ConditionResult result = condition.wait(Deadline::after(duration));
    EXPECT_EQ(result.wait, WaitResult::timed_out);
    EXPECT_EQ(result.lock, LockResult::acquired);
    EXPECT_TRUE(condition.is_own());
  }
  EXPECT_EQ(condition.waiting(), 0U);
}

TEST(Condition, interrupted_wait_ends_with_the_lock_held_and_leaves_its_place) {
  TestSession session;
  Condition condition(session.join());
  const HeldLock held(condition);
  int asked = 0;
  const ConditionResult result = condition.wait_interruptibly(patient(), [&] { return ++asked == 3; });
  EXPECT_EQ(result.wait, WaitResult::timed_out);
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(condition.is_own());
  EXPECT_EQ(condition.waiting(), 0U);
}

TEST(Condition, wait_keeps_its_place_while_it_checks_for_interruptions) {
  TestSession session;
  Condition condition(session.join());
  std::atomic<int> asked{0};
  std::thread waiter([&asked, &condition, membership = session.join()] {
    Condition mine(membership, condition.handle());
    const HeldLock held(mine);
    const auto ask = [&] {
      EXPECT_EQ(condition.waiting(), 1U);
      ++asked;
      return false;
    };
    EXPECT_EQ(mine.wait_interruptibly(patient(), ask).wait, WaitResult::done);
  });
  ASSERT_TRUE(eventually([&] { return asked.load() >= 3; }));
  {
    const HeldLock held(condition);
    EXPECT_EQ(condition.notify_all(), 1U);
  }
  waiter.join();
}

TEST(Condition, wait_without_the_lock_is_an_error) {
  TestSession session;
  Condition condition(session.join());
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(condition.wait()); }, {"without holding its lock"});
  EXPECT_EQ(condition.waiting(), 0U);
}

TEST(Condition, notification_without_the_lock_is_an_error) {
  TestSession session;
  Condition condition(session.join());
  expect_error(Errc::invalid_argument, [&] { condition.notify(); }, {"notifies", "without holding its lock"});
  expect_error(Errc::invalid_argument, [&] { condition.notify_all(); }, {"notifies", "without holding its lock"});
}

TEST(Condition, notification_without_waiters_has_no_effect) {
  TestSession session;
  Condition condition(session.join());
  const HeldLock held(condition);
  EXPECT_EQ(condition.notify(), 0U);
  EXPECT_EQ(condition.notify_all(), 0U);
  EXPECT_EQ(condition.wait(Deadline::after(2ms)).wait, WaitResult::timed_out);
}

std::uint32_t acquire_and_notify(Condition& condition, std::uint32_t count = 1) {
  const HeldLock held(condition);
  return condition.notify(count);
}

// A thread that waits once and counts itself when notified.
std::thread wait_once(TestSession& session, const Condition& condition, std::atomic<int>& woken) {
  return std::thread([&woken, membership = session.join(), handle = condition.handle()] {
    Condition mine(membership, handle);
    const HeldLock held(mine);
    EXPECT_EQ(mine.wait(patient()).wait, WaitResult::done);
    EXPECT_TRUE(mine.is_own());
    ++woken;
  });
}

TEST(Condition, notify_returns_the_number_of_notified_waiters) {
  TestSession session;
  Condition condition(session.join());
  std::atomic<int> woken = 0;
  std::vector<std::thread> waiters;
  for (int index = 0; index < 5; ++index) waiters.push_back(wait_once(session, condition, woken));
  ASSERT_TRUE(eventually([&] { return condition.waiting() == 5; }));
  EXPECT_EQ(acquire_and_notify(condition), 1U);
  EXPECT_EQ(condition.waiting(), 4U);
  EXPECT_EQ(acquire_and_notify(condition, 2), 2U);
  EXPECT_TRUE(eventually([&] { return woken == 3; }));
  EXPECT_EQ(condition.waiting(), 2U);
  {
    const HeldLock held(condition);
    EXPECT_EQ(condition.notify_all(), 2U);
  }
  for (auto& waiter : waiters) waiter.join();
  EXPECT_EQ(woken, 5);
}

TEST(Condition, longest_waiter_is_notified_first) {
  TestSession session;
  Condition condition(session.join());
  std::vector<std::unique_ptr<std::atomic<int>>> woken;
  std::vector<std::thread> waiters;
  for (std::uint32_t index = 0; index < 4; ++index) {
    woken.push_back(std::make_unique<std::atomic<int>>(0));
    waiters.push_back(wait_once(session, condition, *woken.back()));
    ASSERT_TRUE(eventually([&] { return condition.waiting() == index + 1; }));
  }
  for (std::size_t index = 0; index < 4; ++index) {
    EXPECT_EQ(acquire_and_notify(condition), 1U);
    EXPECT_TRUE(eventually([&] { return *woken[index] == 1; }));
    if (index < 3) {
      EXPECT_EQ(*woken[index + 1], 0);
    }
  }
  for (auto& waiter : waiters) waiter.join();
}

TEST(Condition, lock_acquired_several_times_is_free_during_a_wait_and_restored_afterwards) {
  TestSession session;
  const auto membership = session.join();
  RLock lock(membership);
  Condition condition(membership, lock);
  EXPECT_EQ(condition.lock_handle(), lock.handle());
  Condition other(session.join(), condition.handle());
  const HeldLock first(lock);
  const HeldLock second(lock);
  std::thread notifier([&] {
    const HeldLock held(other);  // possible only while the other waits
    EXPECT_EQ(other.notify(), 1U);
  });
  EXPECT_EQ(condition.wait(patient()).wait, WaitResult::done);
  EXPECT_EQ(lock.depth(), 2U);
  notifier.join();
}

TEST(Condition, works_over_an_existing_lock) {
  TestSession session;
  const auto membership = session.join();
  Lock lock(membership);
  Condition condition(membership, lock);
  Condition other(session.join(), condition.handle());
  const HeldLock held(lock);
  std::thread notifier([&] {
    const HeldLock theirs(other);
    EXPECT_EQ(other.notify(), 1U);
  });
  const ConditionResult result = condition.wait(patient());
  EXPECT_EQ(result.wait, WaitResult::done);
  EXPECT_EQ(result.lock, LockResult::acquired);
  EXPECT_TRUE(lock.is_own());
  notifier.join();
}

TEST(Condition, wait_for_ends_by_its_predicate_or_its_deadline) {
  TestSession session;
  Condition condition(session.join());
  Condition other(session.join(), condition.handle());
  bool is_ready = false;
  std::thread notifier([&] {
    for (const bool value : {false, true}) {
      EXPECT_TRUE(eventually([&] { return other.waiting() == 1; }));
      const HeldLock held(other);
      is_ready = value;
      other.notify();
    }
  });
  const HeldLock held(condition);
  EXPECT_EQ(condition.wait_for([&] { return is_ready; }, patient()).wait, WaitResult::done);
  EXPECT_EQ(condition.wait_for([&] { return is_ready; }, Deadline::after(0s)).wait, WaitResult::done);
  notifier.join();
  EXPECT_EQ(condition.wait_for([] { return false; }, Deadline::after(3ms)).wait, WaitResult::timed_out);
}

TEST(Condition, waiting_ends_with_an_error_when_the_session_is_over) {
  TestSession session;
  Condition condition(session.join());
  std::thread ender([&] { session.end(); });
  const HeldLock held(condition);  // finds the lock free at its end, which is allowed
  expect_error(Errc::peer_lost, [&] { static_cast<void>(condition.wait()); });
  EXPECT_FALSE(condition.is_own());
  EXPECT_EQ(condition.waiting(), 0U);
  ender.join();
}

TEST(Condition, end_of_the_session_is_noticed_despite_signals_in_every_sleep) {
  TestSession session;
  Condition condition(session.join());
  ASSERT_EQ(condition.acquire(), LockResult::acquired);
  session.end();
  const test::Interruptions interruptions;
  const Deadline deadline = Deadline::after(10s);  // at which the session is checked in any case
  expect_error(Errc::peer_lost, [&] { static_cast<void>(condition.wait(deadline)); });
  EXPECT_FALSE(deadline.has_passed());
}

TEST(Condition, can_be_moved) {
  TestSession session;
  Condition condition(session.join());
  Condition moved(std::move(condition));
  const HeldLock held(moved);
  EXPECT_TRUE(moved.is_own());
}

TEST(ConditionLayout, places_are_limited_and_reused) {
  auto memory = std::make_unique<ConditionLayout>();
  const ConditionCore core(reinterpret_cast<std::byte*>(memory.get()));
  for (std::uint32_t index = 0; index < Condition::kMostWaiters; ++index) {
    ASSERT_TRUE(core.take_place(static_cast<Owner>(1 + index % 2)).has_value());
  }
  EXPECT_EQ(core.waiting(), Condition::kMostWaiters);
  EXPECT_FALSE(core.take_place(3).has_value());
  core.recover(1);
  EXPECT_EQ(core.waiting(), Condition::kMostWaiters / 2);
  const auto place = core.take_place(3);
  ASSERT_TRUE(place.has_value());
  place->leave();
  place->leave();
  EXPECT_EQ(core.notify_all(), Condition::kMostWaiters / 2);
}

TEST(ConditionLayout, each_notification_of_the_dead_goes_to_one_waiter) {
  auto memory = std::make_unique<ConditionLayout>();
  const ConditionCore core(reinterpret_cast<std::byte*>(memory.get()));
  for (const int owner : {1, 1, 2, 2, 3}) ASSERT_TRUE(core.take_place(static_cast<Owner>(owner)).has_value());
  EXPECT_TRUE(core.notify_one());
  EXPECT_TRUE(core.notify_one());  // both of participant 1
  core.recover(1);
  EXPECT_EQ(core.waiting(), 1U);  // both waiters of participant 2 were notified instead
  core.recover(1);
  EXPECT_EQ(core.waiting(), 1U);
  core.recover(2);
  EXPECT_EQ(core.waiting(), 0U);  // participant 3 was notified, and one notification had no waiter left
  core.recover(3);
  EXPECT_FALSE(core.notify_one());
}

// A queue in plain memory under the condition's lock; the thread sanitizer checks that it is guarded.
TEST(Condition, threads_hand_over_every_item) {
  TestSession session;
  const Condition condition(session.join());
  std::deque<int> items;
  std::int64_t sum = 0;
  const int each = kRounds / 2;
  test::run_threads(session, 4, [&](const std::shared_ptr<Membership>& membership, int index) {
    Condition mine(membership, condition.handle());
    for (int round = 1; round <= each; ++round) {
      const HeldLock held(mine);
      if (index % 2 == 0) {
        items.push_back(round);
        mine.notify();
      } else {
        ASSERT_EQ(mine.wait_for([&] { return !items.empty(); }, patient()).wait, WaitResult::done);
        sum += items.front();
        items.pop_front();
      }
    }
  });
  EXPECT_EQ(sum, std::int64_t{each} * (each + 1));
}

// Places on the board.
constexpr std::size_t kItems = 0;
constexpr std::size_t kTaken = kItems + 1;
constexpr std::size_t kViolations = kTaken + 1;

// Takes items, one per notification. Killed anywhere: waiting, notified, woken, with the lock.
DROVER_PEER_BODY(take_items) {
  const auto invited = test::accept_invitation(peer.channel());
  Condition condition(invited.membership, invited.handles.at(0));
  Board board(invited.membership, invited.handles.at(2));
  for (;;) {
    static_cast<void>(condition.acquire());
    while (board[kItems] == 0) {
      if (condition.wait().wait != WaitResult::done) ++board[kViolations];
    }
    --board[kItems];
    ++board[kTaken];
    condition.release();
  }
}

// After each kill the survivors must take all items, although each item notifies only one of them.
TEST(ConditionTorture, notifications_to_killed_waiters_are_not_lost) {
  TestSession session;
  const auto membership = session.join();
  Condition condition(membership);
  Board board(membership);
  Herd herd(session, "take_items", board.after({condition.handle(), condition.lock_handle()}));
  for (int peer = 0; peer < 3; ++peer) herd.add();
  ASSERT_TRUE(eventually([&] { return condition.waiting() == 3; }));
  test::RandomPause pause;
  for (int kill = 0; kill < kKills; ++kill) {
    const std::size_t place = pause.pick(herd.size());
    for (int item = 0; item < 3; ++item) {
      const HeldLock held(condition, patient());
      ASSERT_TRUE(held.is_held());
      ++board[kItems];
      condition.notify();
    }
    if (kill % 2 == 0) pause();
    herd.remove(place);
    ASSERT_TRUE(eventually([&] { return board[kItems] == 0; }))
        << "after kill " << kill << ": " << board[kItems] << " items, " << condition.waiting() << " wait";
    herd.replace(place);
    ASSERT_TRUE(eventually([&] { return condition.waiting() == 3; }));
  }
  EXPECT_EQ(board[kViolations], 0U);
}

}  // namespace
}  // namespace drover::ipc
