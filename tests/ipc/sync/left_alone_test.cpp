// When a wait for an event, semaphore, condition or barrier reports that nobody is left who could end it, and when it
// must not.
#include "ipc/object/left_alone.hpp"

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/own_thread.hpp"
#include "drover/base/error.hpp"
#include "drover/ipc/barrier.hpp"
#include "drover/ipc/condition.hpp"
#include "drover/ipc/event.hpp"
#include "drover/ipc/semaphore.hpp"
#include "ipc/sync/object_access.hpp"
#include "ipc/sync/sync_support.hpp"
#include "support/build.hpp"
#include "support/expect_error.hpp"

namespace drover::ipc {
namespace {

using test::eventually;
using test::expect_error;
using test::TestSession;
using test::Victim;

DROVER_PEER_BODY(opener_that_dies) {
  const auto invited = test::accept_invitation(peer.channel());
  const Event event(invited.membership, invited.handles.at(0));
  peer.reach("open");
}

DROVER_PEER_BODY(setter_that_dies) {
  const auto invited = test::accept_invitation(peer.channel());
  Event event(invited.membership, invited.handles.at(0));
  Semaphore semaphore(invited.membership, invited.handles.at(1));
  event.set();
  semaphore.release();
  peer.reach("done");
}

class LeftAlone : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test::kIsThreadSanitized) GTEST_SKIP() << "the sanitizer has a thread of its own";
    ASSERT_FALSE(can_be_ended_here()) << "the test needs a process without other threads and handlers of signals";
  }

  void lose_a_participant() {
    const auto leaver = session.join();
    session.recover(leaver->self());
  }
  [[nodiscard]] bool are_gone() const { return are_others_gone(ObjectAccess::of(event)); }

  TestSession session;
  std::shared_ptr<Membership> self = session.join();
  Event event{self};
};

TEST_F(LeftAlone, a_wait_for_an_event_is_an_error_that_names_the_dead) {
  Victim victim(session, "opener_that_dies", {event.handle()}, "open");
  victim.die();
  expect_error(Errc::peer_lost, [&] { static_cast<void>(event.wait()); },
               {event.handle().to_string(), "would never end", "process 1", "no other process", "deadline"});
}

TEST_F(LeftAlone, a_wait_for_a_semaphore_is_an_error) {
  Semaphore semaphore(self, 0);
  lose_a_participant();
  expect_error(Errc::peer_lost, [&] { static_cast<void>(semaphore.acquire()); },
               {"semaphore", "every other process"});
}

TEST_F(LeftAlone, a_wait_for_a_condition_is_an_error_with_the_lock_held) {
  Condition condition(self);
  lose_a_participant();
  static_cast<void>(condition.acquire());
  expect_error(Errc::peer_lost, [&] { static_cast<void>(condition.wait()); }, {"condition"});
  EXPECT_TRUE(condition.is_own());
  EXPECT_EQ(condition.waiting(), 0U);
  condition.release();
}

TEST_F(LeftAlone, a_wait_at_a_barrier_breaks_it) {
  Barrier barrier(self, 2);
  lose_a_participant();
  EXPECT_EQ(barrier.wait().kind, BarrierResult::Kind::broken);
  EXPECT_TRUE(barrier.is_broken());
}

TEST_F(LeftAlone, a_wait_with_a_deadline_times_out) {
  Condition condition(self);
  Semaphore semaphore(self, 0);
  lose_a_participant();
  const auto soon = [] { return Deadline::after(3 * kLongestSleep); };
  EXPECT_EQ(event.wait(soon()), WaitResult::timed_out);
  EXPECT_EQ(semaphore.acquire(soon()), WaitResult::timed_out);
  static_cast<void>(condition.acquire());
  EXPECT_EQ(condition.wait(soon()).wait, WaitResult::timed_out);
  condition.release();
}

TEST_F(LeftAlone, what_the_dead_did_before_ends_the_wait) {
  Semaphore semaphore(self, 0);
  Victim victim(session, "setter_that_dies", {event.handle(), semaphore.handle()}, "done");
  victim.die();
  EXPECT_EQ(event.wait(), WaitResult::done);
  EXPECT_EQ(semaphore.acquire(), WaitResult::done);
}

// A message or a task that the other participant takes may contain the object.
TEST_F(LeftAlone, is_not_alone_while_another_participant_is_present) {
  const auto other = session.join();
  lose_a_participant();
  EXPECT_FALSE(are_gone()) << "it has never had the object open";
  {
    const Event opened(other, event.handle());
  }
  EXPECT_FALSE(are_gone()) << "it has closed the object";
  session.recover(other->self());
  EXPECT_TRUE(are_gone());
}

TEST_F(LeftAlone, is_not_alone_if_nobody_has_departed_since_the_object_was_made) {
  lose_a_participant();
  const Event made_later(self);
  EXPECT_FALSE(are_others_gone(ObjectAccess::of(made_later)));
  EXPECT_TRUE(are_gone());
}

TEST_F(LeftAlone, is_not_alone_while_this_process_replaces_participants) {
  lose_a_participant();
  {
    const ExpectedPeers pool;
    EXPECT_FALSE(are_gone());
  }
  EXPECT_TRUE(are_gone());
}

TEST_F(LeftAlone, another_thread_of_the_program_ends_the_wait) {
  lose_a_participant();
  std::thread setter([&] {
    std::this_thread::sleep_for(4 * kLongestSleep);  // it has never used the event before
    event.set();
  });
  EXPECT_EQ(event.wait(), WaitResult::done);
  setter.join();
}

TEST_F(LeftAlone, threads_of_the_library_do_not_count) {
  std::atomic<bool> is_counted = false;
  std::atomic<bool> is_over = false;
  std::thread own([&] {
    const OwnThread mark;
    is_counted = true;
    EXPECT_TRUE(eventually([&] { return is_over.load(); }));
  });
  EXPECT_TRUE(eventually([&] { return is_counted.load(); }));
  EXPECT_FALSE(can_be_ended_here());
  is_over = true;
  own.join();
}

TEST_F(LeftAlone, a_handler_of_a_signal_counts) {
  struct sigaction handling{};
  handling.sa_handler = [](int) {};
  struct sigaction before{};
  ASSERT_EQ(::sigaction(SIGUSR1, &handling, &before), 0);
  EXPECT_TRUE(can_be_ended_here());
  ASSERT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
  EXPECT_FALSE(can_be_ended_here());
}

}  // namespace
}  // namespace drover::ipc
