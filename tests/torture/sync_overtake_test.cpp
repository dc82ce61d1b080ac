// Stops a process after every single instruction, lets others continue, and resumes it: locks and semaphores.
#include <cstddef>
#include <memory>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/ipc/lock.hpp"
#include "drover/ipc/semaphore.hpp"
#include "drover/ipc/value.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/sync/semaphore_layout.hpp"
#include "support/expect_error.hpp"
#include "support/single_step.hpp"

namespace drover::test {
namespace {

constexpr Owner kDeadHolder = 900;
// Participants with even and odd numbers start their search in different words of tokens.
constexpr Owner kEven = 500;
constexpr Owner kOdd = 501;

DROVER_STEPPED(release_lock_if_own) {
  Lock lock(invited.membership, invited.handles.at(0));
  static_cast<void>(lock.acquire());
  StepMarks::begin();
  lock.release_if_own();
  StepMarks::end();
}

// Recovers a dead participant, as the keeper does.
DROVER_STEPPED(recover_semaphore) {
  const OpenObject semaphore = invited.membership->open(invited.handles.at(0));
  StepMarks::begin();
  ipc::semaphore_kind.recover(ipc::layout_of(semaphore.data), semaphore.spec, kDeadHolder);
  StepMarks::end();
}

DROVER_STEPPED(try_acquire_permit) {
  Semaphore semaphore(invited.membership, invited.handles.at(0));
  Value<bool> result(invited.membership, invited.handles.at(1));
  StepMarks::begin();
  result.store(semaphore.try_acquire());
  StepMarks::end();
}

DROVER_STEPPED(release_any_permit) {
  Semaphore semaphore(invited.membership, invited.handles.at(0));
  Value<bool> result(invited.membership, invited.handles.at(1));
  StepMarks::begin();
  bool is_released = true;
  try {
    semaphore.release();
  } catch (const Error&) {
    is_released = false;
  }
  result.store(is_released);
  StepMarks::end();
}

class SyncOvertake : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_no_single_steps(); !why.empty()) GTEST_SKIP() << why;
  }
  ipc::SemaphoreCore core_of(const ObjectHandle& handle) {
    const OpenObject object = member_->open(handle);
    return {ipc::layout_of(object.data), object.spec};
  }

  TestSession session_;
  std::shared_ptr<Membership> member_ = session_.join();
};

TEST_F(SyncOvertake, release_if_own_never_frees_the_lock_of_the_next_holder) {
  Lock lock(member_);
  SingleStepper stepper(session_, "release_lock_if_own", {lock.handle()});
  bool is_overtaken = false;
  const auto overtake = [&] {
    if (lock.is_held()) lock.force_release();
    ASSERT_EQ(lock.try_acquire(), LockResult::acquired);
    is_overtaken = true;
  };
  const auto check = [&] {
    ASSERT_EQ(lock.is_own(), is_overtaken);
    if (is_overtaken) lock.release();
  };
  const auto prepare = [&] { is_overtaken = false; };
  EXPECT_GT(overtake_at_every_instruction(stepper, {.prepare = prepare, .overtake = overtake, .check = check}), 10U);
}

// A dead and a living participant took permits that others release. Some of these releases happen during the
// recovery, the rest afterwards.
struct HandedOver {
  std::uint64_t by_dead = 0;
  std::uint64_t by_living = 0;
};

class SemaphoreOvertake : public SyncOvertake, public ::testing::WithParamInterface<HandedOver> {
 protected:
  void prepare() {
    released_ = 0;
    for (std::uint64_t taken = 0; taken < GetParam().by_dead; ++taken) ASSERT_TRUE(core_.take(kDeadHolder));
    for (std::uint64_t taken = 0; taken < GetParam().by_living; ++taken) ASSERT_TRUE(semaphore_.try_acquire());
  }
  void release(std::uint64_t count) {
    consumer_.release(count);
    released_ += count;
  }
  void check() {
    release(all() - released_);
    EXPECT_EQ(semaphore_.value(), 3U);
    expect_error(Errc::invalid_argument, [&] { consumer_.release(); });
  }
  static std::uint64_t all() { return GetParam().by_dead + GetParam().by_living; }

  BoundedSemaphore semaphore_{member_, 3};
  ipc::SemaphoreCore core_ = core_of(semaphore_.handle());
  Semaphore consumer_{session_.join(), semaphore_.handle()};
  std::uint64_t released_ = 0;
};

TEST_P(SemaphoreOvertake, releases_in_the_middle_of_a_recovery_are_counted_once) {
  for (std::uint64_t early = 1; early <= all(); ++early) {
    SCOPED_TRACE(early);
    SingleStepper stepper(session_, "recover_semaphore", {semaphore_.handle()});
    EXPECT_GT(
        overtake_at_every_instruction(
            stepper, {.prepare = [&] { prepare(); }, .overtake = [&] { release(early); }, .check = [&] { check(); }}),
        30U);
  }
}

INSTANTIATE_TEST_SUITE_P(Sync, SemaphoreOvertake,
                         ::testing::Values(HandedOver{.by_dead = 1}, HandedOver{.by_dead = 2},
                                           HandedOver{.by_dead = 1, .by_living = 1},
                                           HandedOver{.by_dead = 2, .by_living = 1}));

// At every moment one of eight permits is free, first in one word of tokens, then in the other.
TEST_F(SyncOvertake, permit_that_moves_is_found) {
  for (const Owner from : {kEven, kOdd}) {
    const Owner other = from == kEven ? kOdd : kEven;
    const Semaphore semaphore(member_, 8);
    const Value<bool> result(member_);
    const ipc::SemaphoreCore core = core_of(semaphore.handle());
    SingleStepper stepper(session_, "try_acquire_permit", {semaphore.handle(), result.handle()});
    const auto prepare = [&] {
      for (int taken = 0; taken < 4; ++taken) ASSERT_TRUE(core.take(kEven) && core.take(kOdd));
      core.give(from);
    };
    const auto overtake = [&] {
      core.give(other);
      static_cast<void>(core.take(from));
    };
    const auto check = [&] {
      EXPECT_TRUE(result.load());
      while (core.value() < 8) core.give(kEven);
    };
    EXPECT_GT(overtake_at_every_instruction(stepper, {.prepare = prepare, .overtake = overtake, .check = check}),
              30U);
  }
}

// At every moment one of eight permits is taken.
TEST_F(SyncOvertake, permit_to_be_released_that_moves_is_found) {
  for (const Owner from : {kEven, kOdd}) {
    const Owner other = from == kEven ? kOdd : kEven;
    const BoundedSemaphore semaphore(member_, 8);
    const Value<bool> result(member_);
    const ipc::SemaphoreCore core = core_of(semaphore.handle());
    SingleStepper stepper(session_, "release_any_permit", {semaphore.handle(), result.handle()});
    const auto prepare = [&] { ASSERT_TRUE(core.take(from)); };
    const auto overtake = [&] {
      ASSERT_TRUE(core.take(other));
      if (core.value() < 7) core.give(from);
    };
    const auto check = [&] {
      EXPECT_TRUE(result.load());
      while (core.value() < 8) core.give(from);
    };
    EXPECT_GT(overtake_at_every_instruction(stepper, {.prepare = prepare, .overtake = overtake, .check = check}),
              30U);
  }
}

}  // namespace
}  // namespace drover::test
