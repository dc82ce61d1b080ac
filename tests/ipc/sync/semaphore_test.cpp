// Semaphores between threads, and between processes that are killed at any instant.
#include "drover/ipc/semaphore.hpp"

#include <array>
#include <bit>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "ipc/sync/semaphore_layout.hpp"
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

// Around the boundaries of token words and of the number of tokens.
class SemaphoreSizes : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(SemaphoreSizes, has_exactly_its_initial_permits) {
  TestSession session;
  Semaphore semaphore(session.join(), GetParam());
  EXPECT_EQ(semaphore.value(), GetParam());
  for (std::uint64_t taken = 0; taken < GetParam(); ++taken) ASSERT_TRUE(semaphore.try_acquire()) << taken;
  EXPECT_EQ(semaphore.value(), 0U);
  EXPECT_FALSE(semaphore.try_acquire());
  EXPECT_EQ(semaphore.acquire(Deadline::after(2ms)), WaitResult::timed_out);
  semaphore.release(GetParam());
  EXPECT_EQ(semaphore.value(), GetParam());
  semaphore.release(2);
  EXPECT_EQ(semaphore.value(), GetParam() + 2);
}

TEST_P(SemaphoreSizes, bounded_one_counts_every_permit_and_no_more) {
  TestSession session;
  BoundedSemaphore semaphore(session.join(), GetParam());
  BoundedSemaphore other(session.join(), semaphore.handle());
  EXPECT_TRUE(other.is_bounded());
  for (std::uint64_t taken = 0; taken < GetParam(); ++taken) {
    ASSERT_TRUE(taken % 2 == 0 ? semaphore.try_acquire() : other.try_acquire());
  }
  EXPECT_FALSE(other.try_acquire());
  other.release(GetParam());  // its own, then the other's
  EXPECT_EQ(semaphore.value(), GetParam());
  expect_error(Errc::invalid_argument, [&] { semaphore.release(); }, {"released too many times"});
  EXPECT_EQ(semaphore.value(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Semaphore, SemaphoreSizes, ::testing::Values(0, 1, 3, 4, 5, 64, 4095, 4096, 4097, 5000));

TEST(Semaphore, released_permit_wakes_a_waiter) {
  TestSession session;
  Semaphore semaphore(session.join(), 0);
  std::thread waiter([membership = session.join(), handle = semaphore.handle()] {
    Semaphore mine(membership, handle);
    EXPECT_EQ(mine.acquire(), WaitResult::done);
  });
  semaphore.release();
  waiter.join();
  EXPECT_EQ(semaphore.value(), 0U);
}

TEST(Semaphore, one_participant_acquires_and_another_releases) {
  TestSession session;
  Semaphore slots(session.join(), 2);
  Semaphore other(session.join(), slots.handle());
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(slots.acquire(), WaitResult::done);
    other.release();
  }
  EXPECT_EQ(slots.value(), 2U);
}

// Each call opens the semaphore again, so that no token is held longer than the call.
TEST(Semaphore, use_through_short_lived_handles_keeps_the_count_and_the_recovery) {
  TestSession session;
  const auto membership = session.join();
  const BoundedSemaphore semaphore(session.join(), 3);
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(Semaphore(membership, semaphore.handle()).try_acquire());
    Semaphore(membership, semaphore.handle()).release();
    const auto dead = session.join();
    Semaphore theirs(dead, semaphore.handle());
    ASSERT_TRUE(theirs.try_acquire());
    session.recover(dead->self());
    EXPECT_EQ(semaphore.value(), 3U);
  }
}

TEST(Semaphore, permits_beyond_the_limit_are_refused) {
  TestSession session;
  const auto membership = session.join();
  expect_error(Errc::invalid_argument, [&] { const Semaphore huge(membership, Semaphore::kMostPermits + 1); },
               {"2147483647"});
  Semaphore semaphore(membership, Semaphore::kMostPermits);
  EXPECT_EQ(semaphore.value(), Semaphore::kMostPermits);
  expect_error(Errc::limit_reached, [&] { semaphore.release(); });
  expect_error(Errc::limit_reached, [&] { semaphore.release(Semaphore::kMostPermits + 1); }, {"2147483648"});
  ASSERT_TRUE(semaphore.try_acquire());
  semaphore.release();
  EXPECT_EQ(semaphore.value(), Semaphore::kMostPermits);
}

TEST(Semaphore, bounded_one_stays_bounded_when_opened_as_either_type) {
  TestSession session;
  const auto membership = session.join();
  const BoundedSemaphore bounded(session.join(), 1);
  Semaphore opened(membership, bounded.handle());
  EXPECT_TRUE(opened.is_bounded());
  expect_error(Errc::invalid_argument, [&] { opened.release(); });
  const Semaphore unbounded(session.join(), 1);
  expect_error(Errc::invalid_argument, [&] { const BoundedSemaphore wrong(membership, unbounded.handle()); },
               {"not bounded"});
}

TEST(Semaphore, tokens_left_at_an_orderly_close_are_released_by_others) {
  TestSession session;
  BoundedSemaphore semaphore(session.join(), 3);
  {
    BoundedSemaphore leaver(session.join(), semaphore.handle());
    ASSERT_TRUE(leaver.try_acquire());
    ASSERT_TRUE(leaver.try_acquire());
  }
  EXPECT_EQ(semaphore.value(), 1U);
  semaphore.release(2);
  EXPECT_EQ(semaphore.value(), 3U);
  expect_error(Errc::invalid_argument, [&] { semaphore.release(); });
}

TEST(Semaphore, waiting_ends_with_an_error_when_the_session_is_over) {
  TestSession session;
  Semaphore semaphore(session.join(), 0);
  std::thread ender([&] { session.end(); });
  expect_error(Errc::peer_lost, [&] { static_cast<void>(semaphore.acquire()); });
  ender.join();
}

TEST(Semaphore, can_be_moved) {
  TestSession session;
  Semaphore semaphore(session.join(), 2);
  ASSERT_TRUE(semaphore.try_acquire());
  Semaphore moved(std::move(semaphore));
  EXPECT_EQ(moved.value(), 1U);
  Semaphore assigned(session.join(), 0);
  assigned = std::move(moved);
  assigned.release();
  EXPECT_EQ(assigned.value(), 2U);
}

// The number of holders is atomic; data guarded by a single permit is not, for the thread sanitizer.
TEST(Semaphore, threads_never_hold_more_than_all_permits) {
  TestSession session;
  const Semaphore semaphore(session.join(), 3);
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  test::run_threads(session, 6, [&](const std::shared_ptr<Membership>& membership, int) {
    Semaphore mine(membership, semaphore.handle());
    for (int round = 0; round < kRounds; ++round) {
      ASSERT_EQ(mine.acquire(patient()), WaitResult::done);
      const int now = ++inside;
      if (now > most) most = now;
      --inside;
      mine.release();
    }
  });
  EXPECT_LE(most, 3);
  EXPECT_EQ(semaphore.value(), 3U);
}

TEST(Semaphore, one_permit_excludes_threads) {
  TestSession session;
  const Semaphore semaphore(session.join(), 1);
  std::int64_t counter = 0;
  test::run_threads(session, 4, [&](const std::shared_ptr<Membership>& membership, int) {
    Semaphore mine(membership, semaphore.handle());
    for (int round = 0; round < kRounds; ++round) {
      ASSERT_EQ(mine.acquire(patient()), WaitResult::done);
      ++counter;
      mine.release();
    }
  });
  EXPECT_EQ(counter, std::int64_t{4} * kRounds);
}

TEST(SemaphoreLayout, tokens_of_the_largest_participant_are_found_again) {
  const ObjectSpec spec = SemaphoreSpec{.initial = 6, .is_bounded = true}.pack();
  alignas(kCacheLine) std::array<std::byte, 512> memory{};
  ASSERT_LE(semaphore_kind.layout_bytes(spec), memory.size());
  semaphore_kind.format(memory.data(), spec);
  const SemaphoreCore core(memory.data(), spec);
  for (int taken = 0; taken < 3; ++taken) ASSERT_TRUE(core.take(kMaxParticipants));
  for (int taken = 0; taken < 3; ++taken) ASSERT_TRUE(core.take(1));
  EXPECT_FALSE(core.take(2));
  core.recover(kMaxParticipants);
  core.recover(kMaxParticipants);
  EXPECT_EQ(core.value(), 3U);
  core.recover(1);
  EXPECT_EQ(core.value(), 6U);
}

constexpr int kPermits = 2;
// Places on the board.
constexpr std::size_t kTooMany = 0;
constexpr std::size_t kHeld = kTooMany + 1;  // a bit for each holder of a permit
constexpr std::size_t kFirstPeerCount = kHeld + 1;

// Records that it holds a permit; there must never be more records than permits.
DROVER_PEER_BODY(hammer_semaphore) {
  const auto invited = test::accept_invitation(peer.channel());
  Semaphore semaphore(invited.membership, invited.handles.at(0));
  Board board(invited.membership, invited.handles.at(1));
  const std::size_t place = std::stoul(peer.parameter("place"));
  const std::uint64_t bit = std::uint64_t{1} << place;
  for (;;) {
    static_cast<void>(semaphore.acquire());
    const std::uint64_t held = board[kHeld].fetch_or(bit) | bit;
    if (std::popcount(held) > kPermits) ++board[kTooMany];
    board[kHeld].fetch_and(~bit);
    ++board[kFirstPeerCount + place];
    semaphore.release();
  }
}

TEST(SemaphoreTorture, permits_of_killed_processes_come_back_and_none_are_invented) {
  TestSession session;
  const auto membership = session.join();
  const Semaphore semaphore(membership, kPermits);
  Board board(membership);
  Herd herd(session, "hammer_semaphore", board.after({semaphore.handle()}));
  const auto remove = [&](std::size_t place) {
    herd.kill(place);
    board[kHeld].fetch_and(~(std::uint64_t{1} << place));  // its permit, if any, is taken until the recovery
    herd.recover(place);
  };
  for (int peer = 0; peer < 4; ++peer) herd.add();
  test::RandomPause pause;
  for (int kill = 0; kill < kKills; ++kill) {
    const std::size_t place = pause.pick(herd.size());
    const std::size_t other = (place + 1) % herd.size();
    const std::uint64_t before = board[kFirstPeerCount + place];
    ASSERT_TRUE(eventually([&] { return board[kFirstPeerCount + place] != before; }));
    pause();
    remove(place);
    const std::uint64_t others = board[kFirstPeerCount + other];
    ASSERT_TRUE(eventually([&] { return board[kFirstPeerCount + other] != others; })) << "after kill " << kill;
    herd.replace(place);
  }
  for (std::size_t place = 0; place < herd.size(); ++place) remove(place);
  EXPECT_EQ(board[kTooMany], 0U);
  EXPECT_EQ(semaphore.value(), std::uint64_t{kPermits});
}

}  // namespace
}  // namespace drover::ipc
