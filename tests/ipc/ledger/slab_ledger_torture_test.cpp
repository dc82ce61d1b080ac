// Slab ledgers whose users are killed at random instants, while they make, share, send and release leases.
#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drover/base/fd.hpp"
#include "drover/base/mapping.hpp"
#include "ipc/ledger/kill_at_random.hpp"
#include "ipc/ledger/ledger_support.hpp"
#include "support/peer_group.hpp"

namespace drover {
namespace {

using test::audit;
using test::kChunk;
using test::kill_at_random;
using test::ledger_of;
using test::PeerGroup;
using test::PoolMember;

constexpr LedgerGeometry kGeometry = ledger_of(512, 256);
constexpr std::size_t kPlaces = 8;

// What the processes share beside the state: a place for each of some messages, a tag for each chunk.
struct Torture {
  std::array<std::atomic<std::uint64_t>, kPlaces> places;  // a Parcel, or 0
  std::array<std::atomic<std::uint64_t>, 512> tags;        // stands for the data of a chunk
  std::array<std::atomic<std::uint64_t>, kMaxParticipants + 1> progress;
};
constexpr std::size_t kTortureBytes = (sizeof(Torture) + kCacheLine - 1) / kCacheLine * kCacheLine;

// A lease on its way from one process to another, in one word: what a queue's record is to a ledger.
struct Parcel {
  LeaseRef lease;
  Owner reader = kNobody;
};

constexpr std::uint64_t pack(const Parcel& parcel) {
  return encode(LeaseState{
      .is_used = true, .chunk = parcel.lease.index, .holder = parcel.reader, .generation = parcel.lease.generation});
}

constexpr Parcel unpack(std::uint64_t word) {
  const LeaseState state = decode_lease(word);
  return {.lease = {.index = state.chunk, .generation = state.generation}, .reader = state.holder};
}

class LedgerSite {
 public:
  explicit LedgerSite(const Fd& file) : mapping_(Mapping::shared(file, bytes())), ledger_(state(), kGeometry) {}
  static std::size_t bytes() { return kTortureBytes + ledger_state_bytes(kGeometry); }
  [[nodiscard]] Torture& shared() const { return *reinterpret_cast<Torture*>(mapping_.data()); }
  [[nodiscard]] const SlabLedger& ledger() const noexcept { return ledger_; }
  [[nodiscard]] std::byte* state() const { return mapping_.data() + kTortureBytes; }
  [[nodiscard]] LedgerView view() const { return {state(), kGeometry}; }

  void write_tags(LeaseRef lease, std::uint64_t tag) const {
    const auto [first, count] = chunks_of(lease);
    for (std::uint64_t index = 0; index < count; ++index) shared().tags.at(first + index) = tag;
  }
  // Two blocks at one place, or one that was freed while somebody had a lease on it, would spoil the tags.
  void check_tags(LeaseRef lease) const {
    const auto [first, count] = chunks_of(lease);
    const std::uint64_t tag = shared().tags.at(first);
    for (std::uint64_t index = 0; index < count; ++index) {
      if (shared().tags.at(first + index) != tag) throw std::logic_error(fmt::format("block {} is torn", first));
    }
  }

 private:
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> chunks_of(LeaseRef lease) const {
    const BlockRange range = ledger_.range_of(lease);
    return {range.offset / kChunk, range.bytes / kChunk};
  }

  Mapping mapping_;
  SlabLedger ledger_;
};

// Takes what lies at a place, as a consumer does: claims it, adopts the lease, leaves the place.
std::optional<LeaseRef> receive(const LedgerSite& site, std::atomic<std::uint64_t>& place, Owner me) {
  std::uint64_t seen = place;
  if (seen == 0 || unpack(seen).reader != kNobody) return std::nullopt;
  const LeaseRef lease = unpack(seen).lease;
  if (!place.compare_exchange_strong(seen, pack({.lease = lease, .reader = me}))) return std::nullopt;
  site.ledger().adopt(lease, me);
  place = 0;
  return lease;
}

class LeaseTorturer {
 public:
  LeaseTorturer(const LedgerSite& site, Owner me) : site_(site), me_(me), random_(me) {}

  [[noreturn]] void run() {
    for (std::uint64_t round = 0;; ++round) {
      if (random_() % 2 == 0) {
        send_or_receive();
      } else if (leases_.size() > random_() % 8) {
        release_one();
      } else {
        make_one(round);
      }
      ++site_.shared().progress.at(me_.self());
    }
  }

 private:
  void make_one(std::uint64_t round) {
    const auto lease = site_.ledger().allocate((1 + random_() % 20) * kChunk, me_.self(), me_);
    if (!lease) return;
    site_.write_tags(*lease, (round << 13U) + me_.self());
    leases_.push_back(*lease);
  }
  void release_one() {
    site_.check_tags(leases_.back());
    site_.ledger().release(leases_.back(), me_.self(), me_);
    leases_.pop_back();
  }
  // Sends a lease of its own, or one more on the same block.
  void send_or_receive() {
    auto& place = site_.shared().places.at(random_() % kPlaces);
    if (!leases_.empty() && place == 0) {
      const bool is_moved = random_() % 2 == 0;
      const LeaseRef sent = is_moved ? leases_.back() : site_.ledger().share(leases_.back(), me_.self(), me_);
      send(place, sent, is_moved);
    } else if (const auto lease = receive(site_, place, me_.self())) {
      site_.check_tags(*lease);
      leases_.push_back(*lease);
    }
  }
  // Published first: a lease in transit to which nothing refers would be lost.
  void send(std::atomic<std::uint64_t>& place, LeaseRef sent, bool is_moved) {
    std::uint64_t empty = 0;
    if (place.compare_exchange_strong(empty, pack({.lease = sent}))) {
      static_cast<void>(site_.ledger().hand_over(sent, me_.self(), kInTransit));
      if (is_moved) leases_.pop_back();
    } else if (!is_moved) {
      site_.ledger().release(sent, me_.self(), me_);
    }
  }

  const LedgerSite& site_;
  PoolMember me_;
  std::minstd_rand random_;
  std::vector<LeaseRef> leases_;
};

DROVER_PEER_BODY(use_ledger_until_killed) {
  ChannelMessage message;
  ASSERT_EQ(peer.channel().receive(message, Deadline::never()), ReceiveResult::message);
  const LedgerSite site(message.fds.at(0));
  LeaseTorturer(site, static_cast<Owner>(std::stoi(message.bytes))).run();
}

// What the keeper does after a death: first the places, then the ledger.
void bury(const LedgerSite& site, Owner dead) {
  auto& places = site.shared().places;
  for (auto& place : places) {
    const std::uint64_t seen = place;
    if (seen != 0 && unpack(seen).reader == dead) place = pack({.lease = unpack(seen).lease});
  }
  site.ledger().recover(dead, [&](LeaseRef lease) {
    return std::ranges::any_of(places, [&](const auto& place) {
      const std::uint64_t seen = place;
      return seen != 0 && unpack(seen).lease == lease;
    });
  });
}

TEST(SlabLedgerTorture, processes_killed_at_random_instants_lose_nothing) {
  constexpr int kGroups = 30;
  constexpr int kSize = 6;
  const Fd file = make_memory_file("ledger torture", LedgerSite::bytes());
  const LedgerSite site(file);
  format_ledger(site.state(), kGeometry);
  std::mt19937 random(3);
  Owner next = 1;
  int deaths_with_the_lock = 0;
  for (int round = 0; round < kGroups; ++round) {
    PeerGroup group("use_ledger_until_killed", {.mode = test::PeerMode::processes, .size = kSize});
    group.start();
    const Owner first = next;
    for (int rank = 0; rank < kSize; ++rank, ++next) {
      const int number = file.get();
      group.channel(rank).send(fmt::format("{}", next), {&number, 1});
    }
    for (int rank = 0; rank < kSize; ++rank) {
      const auto dead = static_cast<Owner>(first + rank);
      ASSERT_NO_FATAL_FAILURE(kill_at_random(group, rank, site.shared().progress.at(dead), random));
      if (holder_of(site.view().pool.header.lock) == dead) ++deaths_with_the_lock;
      bury(site, dead);
    }
    for (const auto& outcome : group.wait(Deadline::never())) {
      ASSERT_EQ(outcome.kind, test::PeerOutcome::Kind::abandoned) << outcome.text;
    }
    ASSERT_EQ(audit(site.view()), "");
  }
  const PoolMember me(next);
  for (auto& place : site.shared().places) {
    if (const auto lease = receive(site, place, me.self())) {
      site.check_tags(*lease);
      site.ledger().release(*lease, me.self(), me);
    }
  }
  EXPECT_EQ(audit(site.view()), "");
  EXPECT_EQ(site.ledger().free_bytes(), 512U * kChunk) << "a lease was lost";
  EXPECT_GT(deaths_with_the_lock, 0);
}

}  // namespace
}  // namespace drover
