// The crash tables of semaphores, events, barriers, values and arrays (docs/crash_tables.md): one test for each
// row. Those of locks are in lock_crash_test.cpp.
#include <array>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/ipc/barrier.hpp"
#include "drover/ipc/event.hpp"
#include "drover/ipc/semaphore.hpp"
#include "drover/ipc/value.hpp"
#include "ipc/sync/event_layout.hpp"
#include "ipc/sync/semaphore_layout.hpp"
#include "ipc/sync/sync_support.hpp"
#include "support/expect_error.hpp"

namespace drover::ipc {
namespace {

using test::eventually;
using test::has_sleeper;
using test::layout_for;
using test::patient;
using test::TestSession;
using test::Victim;

DROVER_PEER_BODY(semaphore_victim) {
  const auto invited = test::accept_invitation(peer.channel());
  Semaphore semaphore(invited.membership, invited.handles.at(0));
  static_cast<void>(semaphore.acquire());
  static_cast<void>(semaphore.acquire());
  peer.reach("holding two");
  semaphore.release(2);
  peer.reach("released");
}

TEST(SemaphoreCrash, permits_of_the_dead_are_returned_and_wake_waiters) {
  TestSession session;
  BoundedSemaphore semaphore(session.join(), 2);
  Victim victim(session, "semaphore_victim", {semaphore.handle()}, "holding two");
  victim.await_death();
  std::thread waiter([membership = session.join(), handle = semaphore.handle()] {
    Semaphore mine(membership, handle);
    EXPECT_EQ(mine.acquire(patient()), WaitResult::done);
    mine.release();
  });
  const auto membership = session.join();
  const auto& layout = layout_for<SemaphoreLayout>(membership, semaphore.handle());
  EXPECT_TRUE(eventually([&] { return has_sleeper(layout.bell); }));
  EXPECT_EQ(semaphore.value(), 0U);
  victim.recover();
  waiter.join();
  EXPECT_EQ(semaphore.value(), 2U);
}

TEST(SemaphoreCrash, a_dead_waiter_takes_no_permit) {
  TestSession session;
  Semaphore semaphore(session.join(), 0);
  Victim victim(session, "semaphore_victim", {semaphore.handle()});
  const auto membership = session.join();
  const auto& layout = layout_for<SemaphoreLayout>(membership, semaphore.handle());
  EXPECT_TRUE(eventually([&] { return has_sleeper(layout.bell); }));
  victim.kill();
  semaphore.release();
  EXPECT_EQ(semaphore.value(), 1U);
  EXPECT_TRUE(semaphore.try_acquire());
}

TEST(SemaphoreCrash, a_death_after_the_release_returns_nothing_twice) {
  TestSession session;
  const Semaphore semaphore(session.join(), 2);
  Victim victim(session, "semaphore_victim", {semaphore.handle()}, "released");
  victim.die();
  EXPECT_EQ(semaphore.value(), 2U);
}

TEST(SemaphoreCrash, permits_without_owner_that_the_dead_took_stay_taken) {
  TestSession session;
  Semaphore semaphore(session.join(), 0);
  semaphore.release(3);
  Victim victim(session, "semaphore_victim", {semaphore.handle()}, "holding two");
  victim.die();
  EXPECT_EQ(semaphore.value(), 1U);
}

TEST(SemaphoreCrash, permits_beyond_the_first_4096_that_the_dead_took_stay_taken) {
  TestSession session;
  Semaphore semaphore(session.join(), Semaphore::kTokens + 2);
  for (std::uint64_t taken = 0; taken < Semaphore::kTokens; ++taken) ASSERT_TRUE(semaphore.try_acquire());
  Victim victim(session, "semaphore_victim", {semaphore.handle()}, "holding two");
  victim.die();
  EXPECT_EQ(semaphore.value(), 0U);
}

// One participant acquires and another releases, and the first dies in between.
TEST(SemaphoreCrash, a_resource_handed_over_by_the_dead_is_released_without_an_excess_permit) {
  for (const bool is_bounded : {true, false}) {
    TestSession session;
    const auto membership = session.join();
    const Semaphore slots = is_bounded ? BoundedSemaphore(membership, 3) : Semaphore(membership, 3);
    Semaphore consumer(session.join(), slots.handle());
    Victim victim(session, "semaphore_victim", {slots.handle()}, "holding two");
    victim.die();
    EXPECT_EQ(slots.value(), 3U);
    consumer.release(2);
    EXPECT_EQ(slots.value(), 3U);
    if (is_bounded) {
      test::expect_error(Errc::invalid_argument, [&] { consumer.release(); });
    } else {
      consumer.release();
      EXPECT_EQ(slots.value(), 4U);
    }
  }
}

TEST(SemaphoreCrash, a_permit_of_a_death_before_the_handover_is_free_until_the_next_release_by_another) {
  TestSession session;
  BoundedSemaphore slots(session.join(), 4);
  Semaphore consumer(session.join(), slots.handle());
  ASSERT_TRUE(slots.try_acquire());
  ASSERT_TRUE(slots.try_acquire());
  Victim victim(session, "semaphore_victim", {slots.handle()}, "holding two");
  victim.die();
  EXPECT_EQ(slots.value(), 2U);
  consumer.release(2);  // permits of the living, which cannot be distinguished from those of the dead
  EXPECT_EQ(slots.value(), 2U);
  slots.release(2);
  EXPECT_EQ(slots.value(), 4U);
  test::expect_error(Errc::invalid_argument, [&] { consumer.release(); });
}

DROVER_PEER_BODY(event_victim) {
  const auto invited = test::accept_invitation(peer.channel());
  Event event(invited.membership, invited.handles.at(0));
  peer.reach("before");
  event.set();
  peer.reach("set");
}

DROVER_PEER_BODY(event_waiter_victim) {
  const auto invited = test::accept_invitation(peer.channel());
  Event event(invited.membership, invited.handles.at(0));
  static_cast<void>(event.wait());
}

TEST(EventCrash, stays_set_or_clear_as_the_dead_left_it) {
  for (const char* const point : {"before", "set"}) {
    TestSession session;
    const Event event(session.join());
    Victim victim(session, "event_victim", {event.handle()}, point);
    victim.die();
    EXPECT_EQ(event.is_set(), std::string(point) == "set");
  }
}

// As if the setter was killed between its change and its wake-up.
TEST(EventCrash, waiters_wake_although_the_setter_died_before_its_wake_up) {
  TestSession session;
  const auto membership = session.join();
  const Event event(membership);
  auto& layout = layout_for<EventLayout>(membership, event.handle());
  std::thread waiter([mine = session.join(), handle = event.handle()] {
    Event theirs(mine, handle);
    EXPECT_EQ(theirs.wait(patient()), WaitResult::done);
  });
  EXPECT_TRUE(eventually([&] { return has_sleeper(layout.bell); }));
  layout.state = 3;
  const std::uint32_t rings = layout.bell.word >> 1U;
  session.recover(session.join()->self());
  EXPECT_GT(layout.bell.word >> 1U, rings);  // not only because every sleep is bounded
  waiter.join();
}

TEST(EventCrash, a_dead_waiter_changes_nothing) {
  TestSession session;
  const auto membership = session.join();
  Event event(membership);
  Victim victim(session, "event_waiter_victim", {event.handle()});
  const auto& layout = layout_for<EventLayout>(membership, event.handle());
  EXPECT_TRUE(eventually([&] { return has_sleeper(layout.bell); }));
  victim.kill();
  event.set();
  EXPECT_EQ(event.wait(patient()), WaitResult::done);
}

DROVER_PEER_BODY(barrier_victim) {
  const auto invited = test::accept_invitation(peer.channel());
  {
    Barrier barrier(invited.membership, invited.handles.at(0));
    peer.channel().send("open");
    peer.reach("open");
    static_cast<void>(barrier.wait());
    peer.reach("passed");
  }
  peer.reach("closed");
}

class BarrierCrash : public ::testing::Test {
 protected:
  TestSession session_;
  Barrier barrier_{session_.join(), 2};
};

TEST_F(BarrierCrash, a_party_that_dies_while_it_waits_breaks_it) {
  Barrier three(session_.join(), 3);
  Victim victim(session_, "barrier_victim", {three.handle()});
  ASSERT_TRUE(eventually([&] { return three.waiting() == 1; }));
  std::thread waiter([membership = session_.join(), handle = three.handle()] {
    Barrier mine(membership, handle);
    EXPECT_EQ(mine.wait(patient()).kind, BarrierResult::Kind::broken);
  });
  ASSERT_TRUE(eventually([&] { return three.waiting() == 2; }));
  victim.kill();
  waiter.join();
  EXPECT_EQ(three.wait(patient()).kind, BarrierResult::Kind::broken);
  EXPECT_EQ(three.last_lost(), 1);  // the pid that the test session reports for every death
}

TEST_F(BarrierCrash, a_party_that_dies_before_it_arrives_breaks_it_for_the_waiters) {
  std::thread waiter([membership = session_.join(), handle = barrier_.handle()] {
    Barrier mine(membership, handle);
    EXPECT_EQ(mine.wait(patient()).kind, BarrierResult::Kind::broken);
  });
  ASSERT_TRUE(eventually([&] { return barrier_.waiting() == 1; }));
  Victim victim(session_, "barrier_victim", {barrier_.handle()}, "open");
  victim.die();
  waiter.join();
}

TEST_F(BarrierCrash, a_round_that_was_passed_before_a_party_died_stays_passed) {
  Victim victim(session_, "barrier_victim", {barrier_.handle()}, "passed");
  EXPECT_TRUE(barrier_.wait(patient()).is_passed());
  victim.die();
  EXPECT_TRUE(barrier_.is_broken());
  EXPECT_EQ(barrier_.wait(patient()).kind, BarrierResult::Kind::broken);
}

TEST_F(BarrierCrash, after_a_reset_a_new_party_takes_the_place_of_the_dead) {
  Victim victim(session_, "barrier_victim", {barrier_.handle()}, "open");
  victim.die();
  EXPECT_TRUE(barrier_.is_broken());
  barrier_.reset();
  Victim replacement(session_, "barrier_victim", {barrier_.handle()}, "closed");
  EXPECT_TRUE(barrier_.wait(patient()).is_passed());
  replacement.die();
}

TEST_F(BarrierCrash, death_after_closing_it_breaks_nothing) {
  Victim victim(session_, "barrier_victim", {barrier_.handle()}, "closed");
  EXPECT_TRUE(barrier_.wait(patient()).is_passed());
  victim.die();
  EXPECT_FALSE(barrier_.is_broken());
}

struct Pair {
  std::array<std::uint64_t, 8> words;
};

DROVER_PEER_BODY(value_victim) {
  const auto invited = test::accept_invitation(peer.channel());
  Value<Pair> value(invited.membership, invited.handles.at(0));
  value.update([&](Pair pair) {
    pair.words.fill(2);
    peer.reach("in the update");
    return pair;
  });
  peer.reach("after the update");
}

TEST(ValueCrash, a_writer_that_dies_in_the_middle_has_written_nothing) {
  for (const char* const point : {"in the update", "after the update"}) {
    SCOPED_TRACE(point);
    TestSession session;
    Value<Pair> value(session.join(), {{1, 1, 1, 1, 1, 1, 1, 1}});
    Victim victim(session, "value_victim", {value.handle()}, point);
    victim.await_death();
    const std::uint64_t expected = std::string(point) == "in the update" ? 1 : 2;
    for (const std::uint64_t word : value.load().words) EXPECT_EQ(word, expected);  // readers do not wait
    victim.recover();
    value.store({{3, 3, 3, 3, 3, 3, 3, 3}});
    EXPECT_EQ(value.load().words[7], 3U);
  }
}

DROVER_PEER_BODY(array_victim) {
  const auto invited = test::accept_invitation(peer.channel());
  SharedArray<int> array(invited.membership, invited.handles.at(0));
  static_cast<void>(array.lock().acquire());
  array[0] = 1;
  peer.reach("half changed");
  array[1] = 1;
  array.lock().release();
}

TEST(SharedArrayCrash, a_holder_that_dies_is_reported_through_the_lock) {
  TestSession session;
  SharedArray<int> array(session.join(), 2);
  Victim victim(session, "array_victim", {array.handle(), array.lock().handle()}, "half changed");
  victim.die();
  const HeldLock held(array.lock(), patient());
  EXPECT_EQ(held.result(), LockResult::acquired_after_death);
  EXPECT_EQ(array[0], 1);
  EXPECT_EQ(array[1], 0);
}

}  // namespace
}  // namespace drover::ipc
