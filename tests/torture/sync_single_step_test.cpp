// Kills a process that waits, notifies, sets or releases for others after every single instruction: nobody waits in
// vain, and no permit is lost or created.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/ipc/barrier.hpp"
#include "drover/ipc/condition.hpp"
#include "drover/ipc/event.hpp"
#include "drover/ipc/semaphore.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/sync/condition_layout.hpp"
#include "ipc/sync/event_layout.hpp"
#include "support/expect_error.hpp"
#include "support/single_step.hpp"

namespace drover::test {
namespace {

DROVER_STEPPED(wait_on_condition) {
  Condition condition(invited.membership, invited.handles.at(0));
  static_cast<void>(condition.acquire());
  StepMarks::begin();
  static_cast<void>(condition.wait());
  StepMarks::end();
}

DROVER_STEPPED(notify_all_and_release) {
  Condition condition(invited.membership, invited.handles.at(0));
  static_cast<void>(condition.acquire());
  StepMarks::begin();
  condition.notify_all();
  condition.release();
  StepMarks::end();
}

DROVER_STEPPED(wait_at_barrier) {
  Barrier barrier(invited.membership, invited.handles.at(0));
  StepMarks::begin();
  static_cast<void>(barrier.wait());
  StepMarks::end();
}

DROVER_STEPPED(set_event) {
  Event event(invited.membership, invited.handles.at(0));
  StepMarks::begin();
  event.set();
  StepMarks::end();
}

DROVER_STEPPED(release_for_another) {
  Semaphore semaphore(invited.membership, invited.handles.at(0));
  StepMarks::begin();
  semaphore.release();
  StepMarks::end();
}

template <class Layout>
Layout& layout_for(const std::shared_ptr<Membership>& membership, const ObjectHandle& handle) {
  return *reinterpret_cast<Layout*>(ipc::layout_of(membership->open(handle).data));
}

class SyncSingleStep : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_no_single_steps(); !why.empty()) GTEST_SKIP() << why;
  }

  TestSession session_;
  std::shared_ptr<Membership> member_ = session_.join();
};

// Waiter slots without threads stand for other waiters: a thread would acquire the lock on its own.
class ConditionSingleStep : public SyncSingleStep {
 protected:
  void add_waiter() {
    places_.push_back(core_.take_place(member_->self()));
    ASSERT_TRUE(places_.back().has_value());
  }
  // What the next acquisition reports, and that the lock works.
  LockResult acquire_and_release() {
    const LockResult result = condition_.try_acquire();
    EXPECT_TRUE(is_acquired(result));
    condition_.release();
    return result;
  }
  void remove_waiters() {
    for (const auto& place : std::exchange(places_, {})) place->leave();
    EXPECT_EQ(condition_.waiting(), 0U);
  }
  std::vector<ObjectHandle> objects() { return {condition_.handle(), condition_.lock_handle()}; }

  Condition condition_{member_};
  ipc::ConditionCore core_{
      reinterpret_cast<std::byte*>(&layout_for<ipc::ConditionLayout>(member_, condition_.handle()))};
  std::vector<std::optional<ipc::ConditionPlace>> places_;
};

// Either the dead process held the lock, and all waiters wake; or it had been notified, and the other waiter is
// notified in its place; or neither, and the other waiter keeps waiting.
TEST_F(ConditionSingleStep, killed_before_during_and_after_a_wait) {
  SingleStepper stepper(session_, "wait_on_condition", objects());
  bool is_notified = false;
  stepper.on_sleep([&] {
    if (is_notified) return;
    const HeldLock held(condition_);
    add_waiter();  // after the stepped process
    is_notified = condition_.notify() == 1;
  });
  const auto prepare = [&] { is_notified = false; };
  const auto check_recovered = [&] {
    if (places_.empty()) add_waiter();
    const bool is_told = acquire_and_release() == LockResult::acquired_after_death;
    EXPECT_EQ(condition_.waiting(), is_told || is_notified ? 0U : 1U);
    remove_waiters();
  };
  EXPECT_GT(
      kill_at_every_instruction(stepper, {.prepare = prepare, .check_dead = {}, .check_recovered = check_recovered}),
      60U);
}

TEST_F(ConditionSingleStep, killed_while_it_notifies_leaves_nobody_waiting) {
  SingleStepper stepper(session_, "notify_all_and_release", objects());
  const auto prepare = [&] {
    add_waiter();
    add_waiter();
  };
  const auto check_recovered = [&] {
    static_cast<void>(acquire_and_release());
    EXPECT_EQ(condition_.waiting(), 0U);
    remove_waiters();
  };
  EXPECT_GT(
      kill_at_every_instruction(stepper, {.prepare = prepare, .check_dead = {}, .check_recovered = check_recovered}),
      60U);
}

TEST_F(SyncSingleStep, killed_before_during_and_after_sleeping_at_a_barrier_breaks_it) {
  Barrier barrier(member_, 2);
  SingleStepper stepper(session_, "wait_at_barrier", {barrier.handle()});
  stepper.on_sleep([&] {
    if (barrier.waiting() == 0) return;
    EXPECT_TRUE(barrier.wait().is_passed());
  });
  const auto check_recovered = [&] {
    EXPECT_TRUE(barrier.is_broken());
    EXPECT_EQ(barrier.wait().kind, BarrierResult::Kind::broken);
    barrier.reset();
    EXPECT_EQ(barrier.waiting(), 0U);
  };
  EXPECT_GT(
      kill_at_every_instruction(stepper, {.prepare = [] {}, .check_dead = {}, .check_recovered = check_recovered}),
      60U);
}

// With a process announced as asleep, so that the path includes the wake-up.
TEST_F(SyncSingleStep, killed_in_the_set_of_an_event_leaves_it_set_or_clear_and_rung) {
  Event event(member_);
  ipc::Bell& bell = layout_for<ipc::EventLayout>(member_, event.handle()).bell;
  SingleStepper stepper(session_, "set_event", {event.handle()});
  std::uint32_t announced = 0;
  const auto prepare = [&] {
    event.clear();
    announced = ipc::announce_sleep(bell);
  };
  const auto check_recovered = [&] {
    EXPECT_NE(bell.word, announced);
    const WaitResult expected = event.is_set() ? WaitResult::done : WaitResult::timed_out;
    EXPECT_EQ(event.wait(Deadline::after({})), expected);
    event.set();
    EXPECT_EQ(event.wait(Deadline::after({})), WaitResult::done);
  };
  EXPECT_GT(
      kill_at_every_instruction(stepper, {.prepare = prepare, .check_dead = {}, .check_recovered = check_recovered}),
      30U);
}

TEST_F(SyncSingleStep, killed_in_the_release_of_anothers_permit_has_released_it_or_not) {
  BoundedSemaphore semaphore(member_, 2);
  SingleStepper stepper(session_, "release_for_another", {semaphore.handle()});
  std::optional<std::uint64_t> left;
  const auto prepare = [&] {
    left.reset();
    ASSERT_TRUE(semaphore.try_acquire());
  };
  const auto check_recovered = [&] {
    EXPECT_EQ(semaphore.value(), left.value_or(2));  // the death changes nothing
    if (semaphore.value() == 1) semaphore.release();
    EXPECT_EQ(semaphore.value(), 2U);
    expect_error(Errc::invalid_argument, [&] { semaphore.release(); });
  };
  EXPECT_GT(kill_at_every_instruction(stepper, {.prepare = prepare,
                                                .check_dead = [&] { left = semaphore.value(); },
                                                .check_recovered = check_recovered}),
            30U);
}

// The permit is already free because its holder is dead, so the release in flight adds nothing.
TEST_F(SyncSingleStep, killed_in_the_release_of_the_permit_of_a_dead_process_creates_none) {
  BoundedSemaphore semaphore(member_, 2);
  SingleStepper stepper(session_, "release_for_another", {semaphore.handle()});
  const auto prepare = [&] {
    const auto dead = session_.join();
    Semaphore theirs(dead, semaphore.handle());
    ASSERT_TRUE(theirs.try_acquire());
    session_.recover(dead->self());
  };
  const auto check_recovered = [&] {
    EXPECT_EQ(semaphore.value(), 2U);
    try {
      semaphore.release();  // if the dead process had not done so
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument);
    }
    EXPECT_EQ(semaphore.value(), 2U);
    expect_error(Errc::invalid_argument, [&] { semaphore.release(); });
  };
  EXPECT_GT(
      kill_at_every_instruction(stepper, {.prepare = prepare, .check_dead = {}, .check_recovered = check_recovered}),
      30U);
}

}  // namespace
}  // namespace drover::test
