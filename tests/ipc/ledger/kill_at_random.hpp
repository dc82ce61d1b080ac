// tests/ipc/kill_at_random.hpp: ends a peer at a random instant of its work.
#pragma once

#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "support/peer_group.hpp"

namespace drover::test {

/// Whether a child has ended; it stays to be waited for. `options` are those of waitid.
inline bool has_ended(pid_t pid, int options) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT | options) == 0 && info.si_pid == pid;
}

/// Lets a process work for a moment of random length, kills it, and waits until the kernel says that it is dead.
inline void kill_at_random(PeerGroup& group, int rank, const std::atomic<std::uint64_t>& progress,
                           std::mt19937& random) {
  const std::uint64_t target = progress + 1 + random() % 500;
  while (progress < target) {
    ASSERT_FALSE(has_ended(group.pid(rank), WNOHANG)) << "it ended by itself";
    std::this_thread::yield();
  }
  for (volatile auto wait = static_cast<unsigned>(random() % 5000); wait > 0;) wait = wait - 1;
  group.kill(rank);
  ASSERT_TRUE(has_ended(group.pid(rank), 0));
}

}  // namespace drover::test
