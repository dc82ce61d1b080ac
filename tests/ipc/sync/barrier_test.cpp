// Barriers between threads, and between processes that are killed at any instant.
#include "drover/ipc/barrier.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/base/mutex.hpp"
#include "ipc/sync/barrier_layout.hpp"
#include "ipc/sync/sync_support.hpp"
#include "support/expect_error.hpp"

namespace drover::ipc {
namespace {

using namespace std::chrono_literals;
using Kind = BarrierResult::Kind;
using test::Board;
using test::eventually;
using test::expect_error;
using test::Herd;
using test::kKills;
using test::patient;
using test::TestSession;

TEST(Barrier, a_barrier_of_one_party_never_waits) {
  TestSession session;
  Barrier barrier(session.join(), 1);
  for (int round = 0; round < 100; ++round) {
    const BarrierResult result = barrier.wait();
    EXPECT_TRUE(result.is_passed());
    EXPECT_TRUE(result.is_leader());
  }
  EXPECT_EQ(barrier.parties(), 1U);
  EXPECT_EQ(barrier.waiting(), 0U);
}

TEST(Barrier, impossible_number_of_parties_is_refused) {
  TestSession session;
  const auto membership = session.join();
  expect_error(Errc::invalid_argument, [&] { const Barrier none(membership, 0); }, {"1 to 65535"});
  expect_error(Errc::invalid_argument, [&] { const Barrier many(membership, Barrier::kMostParties + 1); });
}

// The numbers are not atomic: the thread sanitizer checks that the barrier orders them.
TEST(Barrier, threads_pass_together_round_after_round) {
  constexpr std::size_t kParties = 4;
  constexpr int kTurns = 100;
  TestSession session;
  const Barrier barrier(session.join(), kParties);
  std::vector<int> turns(kParties);
  std::atomic<int> leaders = 0;
  test::run_threads(session, kParties, [&](const std::shared_ptr<Membership>& membership, int index) {
    Barrier mine(membership, barrier.handle());
    for (int turn = 1; turn <= kTurns; ++turn) {
      turns[static_cast<std::size_t>(index)] = turn;
      const BarrierResult result = mine.wait(patient());
      ASSERT_TRUE(result.is_passed());
      if (result.is_leader()) ++leaders;
      for (const int theirs : turns) ASSERT_EQ(theirs, turn);
      ASSERT_TRUE(mine.wait(patient()).is_passed());  // all have checked
    }
  });
  EXPECT_EQ(leaders, kTurns);
}

TEST(Barrier, each_party_of_a_round_gets_its_own_index) {
  TestSession session;
  const Barrier barrier(session.join(), 5);
  Mutex mutex;
  std::set<std::uint32_t> indexes;
  test::run_threads(session, 5, [&](const std::shared_ptr<Membership>& membership, int) {
    Barrier mine(membership, barrier.handle());
    const BarrierResult result = mine.wait(patient());
    const MutexLock lock(mutex);
    indexes.insert(result.index);
  });
  EXPECT_EQ(indexes, (std::set<std::uint32_t>{0, 1, 2, 3, 4}));
}

// More threads than parties: later rounds end before a slow party checks, and it still has passed.
TEST(Barrier, more_threads_than_parties_all_pass) {
  TestSession session;
  const Barrier barrier(session.join(), 2);
  std::atomic<int> passed = 0;
  constexpr int kEach = 150;
  test::run_threads(session, 4, [&](const std::shared_ptr<Membership>& membership, int) {
    Barrier mine(membership, barrier.handle());
    while (passed < 4 * kEach) {
      if (!mine.wait(patient()).is_passed()) break;  // the first to see that it is enough breaks it
      ++passed;
    }
    mine.abort();
  });
  EXPECT_GE(passed, 4 * kEach);
}

TEST(Barrier, party_that_times_out_breaks_it_for_all) {
  TestSession session;
  Barrier barrier(session.join(), 3);
  std::thread waiter([membership = session.join(), handle = barrier.handle()] {
    Barrier mine(membership, handle);
    EXPECT_EQ(mine.wait(patient()).kind, Kind::broken);
  });
  ASSERT_TRUE(eventually([&] { return barrier.waiting() == 1; }));
  EXPECT_EQ(barrier.wait(Deadline::after(5ms)).kind, Kind::timed_out);
  waiter.join();
  EXPECT_TRUE(barrier.is_broken());
  EXPECT_EQ(barrier.waiting(), 0U);
  EXPECT_EQ(barrier.wait().kind, Kind::broken);
  EXPECT_EQ(barrier.last_lost(), 0);
}

TEST(Barrier, abort_breaks_it_until_reset) {
  TestSession session;
  Barrier barrier(session.join(), 2);
  std::thread waiter([membership = session.join(), handle = barrier.handle()] {
    Barrier mine(membership, handle);
    EXPECT_EQ(mine.wait(patient()).kind, Kind::broken);
  });
  ASSERT_TRUE(eventually([&] { return barrier.waiting() == 1; }));
  barrier.abort();
  waiter.join();
  EXPECT_EQ(barrier.wait().kind, Kind::broken);
  barrier.reset();
  EXPECT_FALSE(barrier.is_broken());
  std::thread other([membership = session.join(), handle = barrier.handle()] {
    Barrier mine(membership, handle);
    EXPECT_TRUE(mine.wait(patient()).is_passed());
  });
  EXPECT_TRUE(barrier.wait(patient()).is_passed());
  other.join();
}

TEST(Barrier, reset_ends_current_waits) {
  TestSession session;
  Barrier barrier(session.join(), 2);
  std::thread waiter([membership = session.join(), handle = barrier.handle()] {
    Barrier mine(membership, handle);
    EXPECT_EQ(mine.wait(patient()).kind, Kind::broken);
  });
  ASSERT_TRUE(eventually([&] { return barrier.waiting() == 1; }));
  barrier.reset();
  waiter.join();
  EXPECT_FALSE(barrier.is_broken());
  EXPECT_EQ(barrier.waiting(), 0U);
}

TEST(Barrier, orderly_close_and_move_do_not_break_it) {
  TestSession session;
  Barrier barrier(session.join(), 1);
  {
    const Barrier leaver(session.join(), barrier.handle());
  }
  Barrier moved(std::move(barrier));
  EXPECT_TRUE(moved.wait().is_passed());
  const auto leaver = session.join();
  {
    const Barrier theirs(leaver, moved.handle());
  }
  session.recover(leaver->self());
  EXPECT_FALSE(moved.is_broken());
}

TEST(Barrier, waiting_ends_with_an_error_when_the_session_is_over) {
  TestSession session;
  Barrier barrier(session.join(), 2);
  std::thread ender([&] { session.end(); });
  expect_error(Errc::peer_lost, [&] { static_cast<void>(barrier.wait()); });
  ender.join();
}

TEST(Barrier, closing_it_during_unwinding_breaks_it_for_the_waiters) {
  TestSession session;
  Barrier barrier(session.join(), 2);
  std::thread failing([membership = session.join(), handle = barrier.handle()] {
    try {
      const Barrier mine(membership, handle);
      throw std::runtime_error("cannot come");
    } catch (const std::runtime_error&) {
      SUCCEED();
    }
  });
  EXPECT_EQ(barrier.wait(patient()).kind, Kind::broken);
  failing.join();
  EXPECT_EQ(barrier.last_lost(), 0);
}

// Like a destructor that uses a barrier.
TEST(Barrier, opening_and_closing_it_during_unwinding_does_not_break_it) {
  TestSession session;
  const auto membership = session.join();
  Barrier barrier(session.join(), 1);
  struct OpenAtTheEnd {
    std::function<void()> open;
    ~OpenAtTheEnd() { open(); }
  };
  try {
    const OpenAtTheEnd at_the_end{[&] { const Barrier mine(membership, barrier.handle()); }};
    throw std::runtime_error("on its way");
  } catch (const std::runtime_error&) {
    EXPECT_FALSE(barrier.is_broken());
  }
}

TEST(BarrierWord, keeps_every_part_at_its_limits) {
  const BarrierWord word{
      .is_broken = true, .arrived = 0xFFFF, .round = BarrierWord::kRoundMask, .resets = 0x5A, .history = 0xA5A};
  const BarrierWord again = BarrierWord::unpack(word.pack());
  EXPECT_TRUE(again.is_broken);
  EXPECT_EQ(again.arrived, 0xFFFF);
  EXPECT_EQ(again.round, BarrierWord::kRoundMask);
  EXPECT_EQ(again.resets, 0x5A);
  EXPECT_EQ(again.history, 0xA5A);
  EXPECT_EQ(again.next(false).resets, 0x5B);
  EXPECT_EQ(again.next(true).history, 0x4B5);
}

TEST(BarrierWord, knows_the_outcome_of_earlier_rounds_across_the_wrap_around) {
  BarrierWord word{.round = BarrierWord::kRoundMask - 2};
  const std::vector<bool> outcomes = {true, false, true, true, false, true};
  std::vector<BarrierWord> arrivals;
  for (const bool is_passed : outcomes) {
    arrivals.push_back(word);
    word = BarrierWord::unpack(word.next(is_passed).pack());
  }
  for (std::size_t index = 0; index < outcomes.size(); ++index) {
    EXPECT_EQ(word.was_passed(arrivals[index]), outcomes[index]) << index;
  }
}

TEST(BarrierWord, round_older_than_the_history_counts_as_passed_unless_a_reset_followed) {
  for (const bool is_first_passed : {true, false}) {
    const BarrierWord arrival{.resets = 0xFF};
    BarrierWord word = arrival.next(is_first_passed);
    for (std::uint32_t round = 0; round < BarrierWord::kHistory + 5; ++round) {
      word = BarrierWord::unpack(word.next(true).pack());
      EXPECT_EQ(word.was_passed(arrival), is_first_passed) << round;
    }
    EXPECT_FALSE(word.next(false).was_passed(arrival));
  }
}

constexpr std::size_t kPeers = 3;
// Places on the board.
constexpr std::size_t kFirstPassed = 0;
constexpr std::size_t kFirstBroken = kFirstPassed + kPeers;

// Passes repeatedly; if the barrier is broken, counts that and waits until it is reset.
DROVER_PEER_BODY(hammer_barrier) {
  const auto invited = test::accept_invitation(peer.channel());
  Barrier barrier(invited.membership, invited.handles.at(0));
  Board board(invited.membership, invited.handles.at(1));
  const std::size_t place = std::stoul(peer.parameter("place"));
  for (;;) {
    if (barrier.wait().is_passed()) {
      ++board[kFirstPassed + place];
      continue;
    }
    ++board[kFirstBroken + place];
    static_cast<void>(eventually([&] { return !barrier.is_broken(); }));
  }
}

TEST(BarrierTorture, a_killed_party_is_always_detected_and_can_be_replaced) {
  TestSession session;
  const auto membership = session.join();
  Barrier barrier(membership, kPeers);
  Board board(membership);
  Herd herd(session, "hammer_barrier", board.after({barrier.handle()}));
  for (std::size_t peer = 0; peer < kPeers; ++peer) herd.add();
  test::RandomPause pause;
  for (int kill = 0; kill < kKills; ++kill) {
    const std::size_t place = pause.pick(kPeers);
    const std::uint64_t passed = board[kFirstPassed + place];
    ASSERT_TRUE(eventually([&] { return board[kFirstPassed + place] > passed; })) << "before kill " << kill;
    pause();
    std::vector<std::uint64_t> broken;
    for (std::size_t peer = 0; peer < kPeers; ++peer) broken.push_back(board[kFirstBroken + peer]);
    herd.remove(place);
    EXPECT_TRUE(barrier.is_broken());
    for (std::size_t peer = 0; peer < kPeers; ++peer) {
      if (peer == place) continue;
      ASSERT_TRUE(eventually([&] { return board[kFirstBroken + peer] > broken[peer]; })) << "after kill " << kill;
    }
    barrier.reset();
    herd.replace(place);
  }
}

}  // namespace
}  // namespace drover::ipc
