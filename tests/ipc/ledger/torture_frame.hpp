// tests/ipc/ledger/torture_frame.hpp: processes use a pool or a ledger and hand things over until they are killed.
#pragma once

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drover/base/fd.hpp"
#include "drover/base/mapping.hpp"
#include "ipc/ledger/pool_support.hpp"
#include "ipc/ledger/slab_ledger.hpp"
#include "support/peer_group.hpp"

namespace drover::test {

inline constexpr std::uint32_t kTortureChunks = 512;
using Place = std::atomic<std::uint64_t>;

/// What the processes share besides the state of the pool or ledger.
struct TortureBoard {
  std::array<Place, 8> places;                                  ///< handovers, or 0
  std::array<std::atomic<std::uint64_t>, kTortureChunks> tags;  ///< stands for the data of each chunk
  std::array<std::atomic<std::uint64_t>, kMaxParticipants + 1> progress;
};
inline constexpr std::size_t kBoardBytes =
    (sizeof(TortureBoard) + ipc::kCacheLine - 1) / ipc::kCacheLine * ipc::kCacheLine;

/// A block or lease in flight from one process to another, in one word, as a queue's record refers to it.
template <class Ref>
struct Handover {
  Ref ref;
  Owner reader = kNobody;

  [[nodiscard]] std::uint64_t pack() const {
    const auto [index, generation] = ref;
    return ipc::encode(ipc::Extent{.is_used = true, .length = index, .owner = reader, .generation = generation});
  }
  static Handover unpack(std::uint64_t word) {
    const ipc::Extent extent = ipc::decode_extent(word);
    return {.ref = {extent.length, extent.generation}, .reader = extent.owner};
  }
};

/// What is tortured, in this process's address space. `Subject` has the operations that differ between pools and
/// ledgers.
template <class Subject>
class TortureSite {
 public:
  using Ref = typename Subject::Ref;

  explicit TortureSite(const Fd& file) : mapping_(Mapping::shared(file, bytes())), subject_(state()) {}
  static std::size_t bytes() { return kBoardBytes + Subject::state_bytes(); }
  [[nodiscard]] TortureBoard& board() const { return *reinterpret_cast<TortureBoard*>(mapping_.data()); }
  [[nodiscard]] std::byte* state() const { return mapping_.data() + kBoardBytes; }
  [[nodiscard]] const Subject& subject() const noexcept { return subject_; }

  void write_tags(Ref ref, std::uint64_t tag) const {
    const auto [first, count] = chunks_of(ref);
    for (std::uint64_t index = 0; index < count; ++index) board().tags.at(first + index) = tag;
  }
  /// Fails if two blocks overlapped, or one was freed while it was in use: each would overwrite the other's tags.
  void check_tags(Ref ref) const {
    const auto [first, count] = chunks_of(ref);
    const std::uint64_t tag = board().tags.at(first);
    for (std::uint64_t index = 0; index < count; ++index) {
      if (board().tags.at(first + index) != tag) throw std::logic_error(fmt::format("block {} is torn", first));
    }
  }
  /// Takes what lies at a place, as a consumer does: claims it, adopts it, clears the place.
  std::optional<Ref> take(Place& place, Owner me) const {
    std::uint64_t seen = place;
    if (seen == 0 || Handover<Ref>::unpack(seen).reader != kNobody) return std::nullopt;
    const Ref ref = Handover<Ref>::unpack(seen).ref;
    if (!place.compare_exchange_strong(seen, Handover<Ref>{.ref = ref, .reader = me}.pack())) return std::nullopt;
    subject_.adopt(ref, me);
    place = 0;
    return ref;
  }
  /// Recovers after a death as the keeper does: first the places, then the pool or ledger.
  void recover(Owner dead) const {
    for (Place& place : board().places) {
      const std::uint64_t seen = place;
      const auto handover = Handover<Ref>::unpack(seen);
      if (seen != 0 && handover.reader == dead) place = Handover<Ref>{.ref = handover.ref}.pack();
    }
    subject_.recover(dead, [&](Ref ref) {
      return std::ranges::any_of(board().places, [&](const Place& place) {
        const std::uint64_t seen = place;
        return seen != 0 && Handover<Ref>::unpack(seen).ref == ref;
      });
    });
  }

 private:
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> chunks_of(Ref ref) const {
    const ipc::BlockRange range = subject_.range_of(ref);
    return {range.offset / kChunk, range.bytes / kChunk};
  }

  Mapping mapping_;
  Subject subject_;
};

/// One process at work.
template <class Subject>
class Torturer {
 public:
  Torturer(const TortureSite<Subject>& site, Owner me) : site_(site), me_(me), random_(me) {}

  [[noreturn]] void run() {
    for (std::uint64_t round = 0;; ++round) {
      if (random_() % Subject::kHandoverEvery == 0) {
        hand_over_or_take();
      } else if (held_.size() > random_() % Subject::kMostHeld) {
        end_one();
      } else {
        make_one(round);
      }
      ++site_.board().progress.at(me_.self());
    }
  }

 private:
  void make_one(std::uint64_t round) {
    const auto made = site_.subject().allocate((1 + random_() % Subject::kMostChunks) * kChunk, me_);
    if (!made) return;
    site_.write_tags(*made, (round << 13U) + me_.self());
    held_.push_back(*made);
  }
  void end_one() {
    site_.check_tags(held_.back());
    site_.subject().end(held_.back(), me_);
    held_.pop_back();
  }
  void hand_over_or_take() {
    Place& place = site_.board().places.at(random_() % site_.board().places.size());
    if (!held_.empty() && place == 0) {
      site_.subject().hand_over(place, held_, me_, random_() % 2 == 0);
    } else if (const auto taken = site_.take(place, me_.self())) {
      site_.check_tags(*taken);
      held_.push_back(*taken);
    }
  }

  const TortureSite<Subject>& site_;
  PoolMember me_;
  std::minstd_rand random_;
  std::vector<typename Subject::Ref> held_;
};

/// What a peer of `torture` does.
template <class Subject>
void work_until_killed(Peer& peer) {
  ChannelMessage message;
  ASSERT_EQ(peer.channel().receive(message, Deadline::never()), ReceiveResult::message);
  const TortureSite<Subject> site(message.fds.at(0));
  Torturer<Subject>(site, static_cast<Owner>(std::stoi(message.bytes))).run();
}

/// Whether a child has ended; does not reap it. `options` are those of waitid.
inline bool has_ended(pid_t pid, int options) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT | options) == 0 && info.si_pid == pid;
}

/// Lets a process work for a random time, kills it, and waits until the kernel reports its death.
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

/// Runs groups of six processes of the peer body `body`, kills and reaps each, and expects that nothing is lost.
template <class Subject>
void torture(const char* body, int groups, unsigned seed) {
  constexpr int kSize = 6;
  const Fd file = make_memory_file("torture", TortureSite<Subject>::bytes());
  const TortureSite<Subject> site(file);
  Subject::format(site.state());
  std::mt19937 random(seed);
  Owner next = 1;
  int deaths_with_the_lock = 0;
  for (int round = 0; round < groups; ++round) {
    PeerGroup group(body, {.mode = PeerMode::processes, .size = kSize});
    group.start();
    const Owner first = next;
    for (int rank = 0; rank < kSize; ++rank, ++next) {
      const int number = file.get();
      group.channel(rank).send(fmt::format("{}", next), {&number, 1});
    }
    for (int rank = 0; rank < kSize; ++rank) {
      const auto dead = static_cast<Owner>(first + rank);
      ASSERT_NO_FATAL_FAILURE(kill_at_random(group, rank, site.board().progress.at(dead), random));
      if (site.subject().lock_holder() == dead) ++deaths_with_the_lock;
      site.recover(dead);
    }
    for (const auto& outcome : group.wait(Deadline::never())) {
      ASSERT_EQ(outcome.kind, PeerOutcome::Kind::abandoned) << outcome.text;
    }
    ASSERT_EQ(site.subject().audit(), "");
  }
  const PoolMember me(next);
  for (Place& place : site.board().places) {
    if (const auto taken = site.take(place, me.self())) {
      site.check_tags(*taken);
      site.subject().end(*taken, me);
    }
  }
  EXPECT_EQ(site.subject().audit(), "");
  EXPECT_EQ(site.subject().free_bytes(), kTortureChunks * kChunk) << "something was lost";
  EXPECT_GT(deaths_with_the_lock, 0);
}

}  // namespace drover::test
