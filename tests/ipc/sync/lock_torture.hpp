// tests/ipc/sync/lock_torture.hpp: processes hold a lock over and over, and are killed and replaced meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "drover/ipc/lock.hpp"
#include "ipc/sync/sync_support.hpp"

namespace drover::test {

/// Places on the board of a lock torture; the counts of the peers follow.
inline constexpr std::size_t kHolder = 0;
inline constexpr std::size_t kLockViolations = 1;
inline constexpr std::size_t kDeathsSeen = 2;
inline constexpr std::size_t kFirstHold = 3;

/// What a peer does: a participant that enters without a report of a death must find nobody inside. `inside(lock,
/// round)` returns whether everything was right while the lock was held.
template <class LockType, class Inside>
[[noreturn]] void hammer(Peer& peer, Inside inside) {
  const auto invited = accept_invitation(peer.channel());
  LockType lock(invited.membership, invited.handles.at(0));
  Board board(invited.membership, invited.handles.at(1));
  const std::uint64_t self = invited.membership->self();
  const std::size_t count = kFirstHold + std::stoul(peer.parameter("place"));
  for (std::uint32_t round = 0;; ++round) {
    const LockResult result = lock.acquire();
    const std::uint64_t before = board[kHolder].exchange(self);
    if (result == LockResult::acquired && before != 0) ++board[kLockViolations];
    if (result == LockResult::acquired_after_death) ++board[kDeathsSeen];
    if (!inside(lock, round)) ++board[kLockViolations];
    for (int check = 0; check < 20; ++check) {
      if (board[kHolder] != self) ++board[kLockViolations];
    }
    board[kHolder] = 0;
    ++board[count];
    lock.release();
  }
}

/// Kills and replaces peers of `body`, each of which calls `hammer`, and expects exclusion and progress.
template <class LockType>
void torture_lock(const char* body, int peers, int kills) {
  TestSession session;
  const auto membership = session.join();
  const LockType lock(membership);
  Board board(membership);
  Herd herd(session, body, board.after({lock.handle()}));
  for (int peer = 0; peer < peers; ++peer) herd.add();
  RandomPause pause;
  for (int kill = 0; kill < kills; ++kill) {
    const std::size_t place = pause.pick(herd.size());
    const std::size_t other = (place + 1) % herd.size();
    const std::uint64_t before = board[kFirstHold + place];
    ASSERT_TRUE(eventually([&] { return board[kFirstHold + place] != before; }));
    pause();
    herd.remove(place);
    const std::uint64_t others = board[kFirstHold + other];
    ASSERT_TRUE(eventually([&] { return board[kFirstHold + other] != others; })) << "after kill " << kill;
    herd.replace(place);
  }
  EXPECT_EQ(board[kLockViolations], 0U);
  ::testing::Test::RecordProperty("deaths_seen", static_cast<int>(board[kDeathsSeen].load()));
}

}  // namespace drover::test
