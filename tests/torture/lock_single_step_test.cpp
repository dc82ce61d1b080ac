// Kills a holder or waiter after every single instruction: the lock becomes free, and only the next process to
// acquire it learns whether the dead one held it.
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "drover/ipc/event.hpp"
#include "drover/ipc/lock.hpp"
#include "drover/ipc/semaphore.hpp"
#include "drover/ipc/value.hpp"
#include "support/single_step.hpp"

namespace drover::test {
namespace {

DROVER_STEPPED(acquire_and_release_lock) {
  Lock lock(invited.membership, invited.handles.at(0));
  StepMarks::begin();
  static_cast<void>(lock.acquire());
  lock.release();
  StepMarks::end();
}

DROVER_STEPPED(acquire_and_release_rlock_twice) {
  RLock lock(invited.membership, invited.handles.at(0));
  StepMarks::begin();
  static_cast<void>(lock.acquire());
  static_cast<void>(lock.acquire());
  lock.release();
  lock.release();
  StepMarks::end();
}

DROVER_STEPPED(acquire_and_release_permit) {
  Semaphore semaphore(invited.membership, invited.handles.at(0));
  StepMarks::begin();
  static_cast<void>(semaphore.acquire());
  semaphore.release();
  StepMarks::end();
}

DROVER_STEPPED(change_value) {
  Value<std::uint64_t> value(invited.membership, invited.handles.at(0));
  StepMarks::begin();
  static_cast<void>(value.update([](std::uint64_t number) { return number ^ 0xffff'ffff'ffff'ffffU; }));
  StepMarks::end();
}

DROVER_STEPPED(wait_for_event) {
  Event event(invited.membership, invited.handles.at(0));
  StepMarks::begin();
  static_cast<void>(event.wait());
  StepMarks::end();
}

class LockSingleStep : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_no_single_steps(); !why.empty()) GTEST_SKIP() << why;
  }

  // What the next acquisition reports, and that it reports a death once.
  template <class LockType>
  static void expect_free(LockType& lock, bool was_held) {
    const auto expected = was_held ? LockResult::acquired_after_death : LockResult::acquired;
    ASSERT_EQ(lock.try_acquire(), expected);
    lock.release();
    ASSERT_EQ(lock.try_acquire(), LockResult::acquired);
    lock.release();
    EXPECT_FALSE(lock.is_held());
  }

  template <class LockType>
  std::size_t kill_everywhere(const std::string& body, LockType& lock) {
    SingleStepper stepper(session_, body, {lock.handle()});
    bool was_held = false;
    return kill_at_every_instruction(stepper, {.prepare = [] {},
                                               .check_dead = [&] { was_held = lock.is_held(); },
                                               .check_recovered = [&] { expect_free(lock, was_held); }});
  }

  // The test holds the lock until the process sleeps, then releases it to the process.
  template <class LockType>
  std::size_t kill_sleeper_everywhere(const std::string& body, LockType& lock) {
    SingleStepper stepper(session_, body, {lock.handle()});
    stepper.on_sleep([&] {
      if (lock.is_own()) lock.release();
    });
    bool was_held = false;
    const auto check_dead = [&] {
      if (lock.is_own()) lock.release();
      was_held = lock.is_held();
    };
    const auto prepare = [&] { ASSERT_EQ(lock.acquire(), LockResult::acquired); };
    return kill_at_every_instruction(stepper, {.prepare = prepare, .check_dead = check_dead, .check_recovered = [&] {
                                                 expect_free(lock, was_held);
                                               }});
  }

  TestSession session_;
  std::shared_ptr<Membership> member_ = session_.join();
};

TEST_F(LockSingleStep, killed_in_acquire_and_release_of_a_lock) {
  Lock lock(member_);
  EXPECT_GT(kill_everywhere("acquire_and_release_lock", lock), 30U);
}

TEST_F(LockSingleStep, killed_before_during_and_after_sleeping_for_a_lock) {
  Lock lock(member_);
  EXPECT_GT(kill_sleeper_everywhere("acquire_and_release_lock", lock), 60U);
}

TEST_F(LockSingleStep, killed_in_acquire_and_release_of_an_rlock) {
  RLock lock(member_);
  EXPECT_GT(kill_everywhere("acquire_and_release_rlock_twice", lock), 60U);
}

TEST_F(LockSingleStep, killed_before_during_and_after_sleeping_for_an_rlock) {
  RLock lock(member_);
  EXPECT_GT(kill_sleeper_everywhere("acquire_and_release_rlock_twice", lock), 60U);
}

TEST_F(LockSingleStep, killed_with_a_permit_gives_it_back) {
  Semaphore semaphore(member_, 2);
  SingleStepper stepper(session_, "acquire_and_release_permit", {semaphore.handle()});
  const auto check_recovered = [&] {
    EXPECT_EQ(semaphore.value(), 2U);
    ASSERT_TRUE(semaphore.try_acquire());
    ASSERT_TRUE(semaphore.try_acquire());
    ASSERT_FALSE(semaphore.try_acquire());
    semaphore.release(2);
  };
  EXPECT_GT(
      kill_at_every_instruction(stepper, {.prepare = [] {}, .check_dead = {}, .check_recovered = check_recovered}),
      30U);
}

TEST_F(LockSingleStep, killed_before_during_and_after_sleeping_for_a_permit) {
  Semaphore semaphore(member_, 1);
  SingleStepper stepper(session_, "acquire_and_release_permit", {semaphore.handle()});
  bool is_mine = false;
  const auto give_back = [&] {
    if (std::exchange(is_mine, false)) semaphore.release();
  };
  const auto prepare = [&] { ASSERT_TRUE(is_mine = semaphore.try_acquire()); };
  stepper.on_sleep(give_back);
  EXPECT_GT(kill_at_every_instruction(stepper, {.prepare = prepare,
                                                .check_dead = give_back,
                                                .check_recovered = [&] { EXPECT_EQ(semaphore.value(), 1U); }}),
            60U);
}

TEST_F(LockSingleStep, killed_in_a_change_of_a_value_leaves_the_old_or_the_new) {
  Value<std::uint64_t> value(member_, 0);
  SingleStepper stepper(session_, "change_value", {value.handle()});
  const auto check_recovered = [&] {
    const std::uint64_t found = value.load();
    EXPECT_TRUE(found == 0 || found == ~std::uint64_t{0}) << "half changed: " << found;
    EXPECT_EQ(value.update([](std::uint64_t number) { return number + 1; }), found + 1);
  };
  EXPECT_GT(kill_at_every_instruction(
                stepper, {.prepare = [&] { value.store(0); }, .check_dead = {}, .check_recovered = check_recovered}),
            30U);
}

TEST_F(LockSingleStep, killed_before_during_and_after_sleeping_for_an_event) {
  Event event(member_);
  SingleStepper stepper(session_, "wait_for_event", {event.handle()});
  stepper.on_sleep([&] { event.set(); });
  const auto check_recovered = [&] {
    event.set();
    EXPECT_EQ(event.wait(Deadline::after({})), WaitResult::done);
  };
  EXPECT_GT(kill_at_every_instruction(
                stepper, {.prepare = [&] { event.clear(); }, .check_dead = {}, .check_recovered = check_recovered}),
            30U);
}

}  // namespace
}  // namespace drover::test
