// Events between threads, and between processes that are killed at any instant.
#include "drover/ipc/event.hpp"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
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
using test::patient;
using test::TestSession;

TEST(Event, is_initially_clear) {
  TestSession session;
  Event event(session.join());
  EXPECT_FALSE(event.is_set());
  EXPECT_EQ(event.wait(Deadline::after(0s)), WaitResult::timed_out);
  EXPECT_EQ(event.wait(Deadline::after(5ms)), WaitResult::timed_out);
}

TEST(Event, set_is_visible_to_all_until_it_is_cleared) {
  TestSession session;
  Event event(session.join());
  Event other(session.join(), event.handle());
  event.set();
  event.set();
  EXPECT_TRUE(other.is_set());
  EXPECT_EQ(other.wait(), WaitResult::done);
  EXPECT_EQ(event.wait(), WaitResult::done);
  other.clear();
  EXPECT_FALSE(event.is_set());
  EXPECT_EQ(event.wait(Deadline::after(0s)), WaitResult::timed_out);
  event.clear();
  event.set();
  EXPECT_TRUE(other.is_set());
}

TEST(Event, all_waiters_are_woken) {
  TestSession session;
  Event event(session.join());
  std::atomic<int> waiting = 0;
  std::thread setter([&] {
    EXPECT_TRUE(eventually([&] { return waiting == 4; }));
    event.set();
  });
  test::run_threads(session, 4, [&](const std::shared_ptr<Membership>& membership, int) {
    Event mine(membership, event.handle());
    ++waiting;
    EXPECT_EQ(mine.wait(patient()), WaitResult::done);
  });
  setter.join();
}

// The waiter starts before the pulse: it reports that it waits only after its first check has failed.
TEST(Event, a_set_that_is_cleared_at_once_still_ends_waits) {
  TestSession session;
  const auto membership = session.join();
  Event event(membership);
  for (int round = 0; round < 50; ++round) {
    std::atomic<bool> is_done = false;
    std::thread waiter([&, mine = session.join()] {
      Event theirs(mine, event.handle());
      EXPECT_EQ(theirs.wait(patient()), WaitResult::done);
      is_done = true;
    });
    EXPECT_TRUE(eventually([&] {  // pulses until one falls into the wait
      event.set();
      event.clear();
      return is_done.load();
    }));
    waiter.join();
  }
  EXPECT_FALSE(event.is_set());
}

TEST(Event, waiting_ends_with_an_error_when_the_session_is_over) {
  TestSession session;
  Event event(session.join());
  std::thread ender([&] { session.end(); });
  expect_error(Errc::peer_lost, [&] { static_cast<void>(event.wait()); });
  ender.join();
}

TEST(Event, can_be_moved) {
  TestSession session;
  Event event(session.join());
  event.set();
  Event moved(std::move(event));
  EXPECT_TRUE(moved.is_set());
  Event assigned(session.join());
  assigned = std::move(moved);
  EXPECT_TRUE(assigned.is_set());
}

// Writes before a set are visible after the wait; the thread sanitizer checks that.
TEST(Event, set_publishes_earlier_writes) {
  TestSession session;
  const Event ping(session.join());
  const Event pong(session.join());
  int ball = 0;
  test::run_threads(session, 2, [&](const std::shared_ptr<Membership>& membership, int index) {
    Event mine(membership, index == 0 ? ping.handle() : pong.handle());
    Event theirs(membership, index == 0 ? pong.handle() : ping.handle());
    for (int round = 0; round < 500; ++round) {
      if (index == 0) {
        ball = 2 * round + 1;
        theirs.set();
        EXPECT_EQ(mine.wait(patient()), WaitResult::done);
        mine.clear();
        EXPECT_EQ(ball, 2 * round + 2);
      } else {
        EXPECT_EQ(mine.wait(patient()), WaitResult::done);
        mine.clear();
        EXPECT_EQ(ball, 2 * round + 1);
        ball = 2 * round + 2;
        theirs.set();
      }
    }
  });
}

// Answers each question; killed anywhere.
DROVER_PEER_BODY(answer_events) {
  const auto invited = test::accept_invitation(peer.channel());
  Event question(invited.membership, invited.handles.at(0));
  Event answer(invited.membership, invited.handles.at(1));
  Board board(invited.membership, invited.handles.at(2));
  for (;;) {
    static_cast<void>(question.wait());
    question.clear();
    ++board[0];
    answer.set();
  }
}

TEST(EventTorture, killed_setters_and_waiters_leave_an_event_that_works) {
  TestSession session;
  const auto membership = session.join();
  Event question(membership);
  Event answer(membership);
  Board board(membership);
  Herd herd(session, "answer_events", board.after({question.handle(), answer.handle()}));
  herd.add();
  herd.add();
  test::RandomPause pause;
  for (int kill = 0; kill < kKills; ++kill) {
    const std::size_t place = pause.pick(herd.size());
    question.set();
    pause();
    herd.remove(place);
    answer.clear();
    question.set();  // the dead may have cleared it without answering
    ASSERT_EQ(answer.wait(patient()), WaitResult::done) << "after kill " << kill;
    herd.replace(place);
  }
  EXPECT_GE(board[0], 1U);
}

}  // namespace
}  // namespace drover::ipc
