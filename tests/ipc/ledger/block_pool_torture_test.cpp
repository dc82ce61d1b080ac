// Block pools whose users are killed at random instants.
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
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
#include "ipc/ledger/pool_support.hpp"
#include "support/peer_group.hpp"

namespace drover {
namespace {

using test::audit;
using test::chunks;
using test::kChunk;
using test::kill_at_random;
using test::PeerGroup;
using test::PoolMember;

// What the processes of the torture share: the state, a place for each of some hand-overs, a tag for each chunk.
constexpr std::uint32_t kTortureChunks = 512;
constexpr std::size_t kPlaces = 8;

struct Torture {
  std::array<std::atomic<std::uint64_t>, kPlaces> places;       // a Handover, or 0
  std::array<std::atomic<std::uint64_t>, kTortureChunks> tags;  // stands for the data of a chunk
  std::array<std::atomic<std::uint64_t>, kMaxParticipants + 1> progress;
};
constexpr std::size_t kTortureBytes = (sizeof(Torture) + kCacheLine - 1) / kCacheLine * kCacheLine;

// A block on its way from one process to another, in one word: what a queue's slot is to a pool.
struct Handover {
  BlockRef block;
  Owner reader = kNobody;
};

constexpr std::uint64_t pack(const Handover& handover) {
  return encode({.is_used = true,
                 .length = handover.block.chunk,
                 .owner = handover.reader,
                 .generation = handover.block.generation});
}

constexpr Handover unpack(std::uint64_t word) {
  const Extent extent = decode_extent(word);
  return {.block = {.chunk = extent.length, .generation = extent.generation}, .reader = extent.owner};
}

class TortureSite {
 public:
  explicit TortureSite(const Fd& file)
      : mapping_(Mapping::shared(file, kTortureBytes + pool_state_bytes(geometry()))), pool_(state(), geometry()) {}
  static PoolGeometry geometry() { return chunks(kTortureChunks); }
  [[nodiscard]] Torture& shared() const { return *reinterpret_cast<Torture*>(mapping_.data()); }
  [[nodiscard]] const BlockPool& pool() const noexcept { return pool_; }
  [[nodiscard]] std::byte* state() const { return mapping_.data() + kTortureBytes; }
  [[nodiscard]] PoolView view() const { return {state(), kTortureChunks}; }

  void write_tags(BlockRef block, std::uint64_t tag) const {
    for_each_tag(block, [&](auto& stored) { stored = tag; });
  }
  // Two blocks at one place would spoil each other's tags.
  void check_tags(BlockRef block) const {
    const std::uint64_t first = shared().tags.at(block.chunk);
    for_each_tag(block, [&](auto& stored) {
      if (stored != first) throw std::logic_error(fmt::format("block {} is torn", block.chunk));
    });
  }

 private:
  void for_each_tag(BlockRef block, const std::function<void(std::atomic<std::uint64_t>&)>& visit) const {
    const std::uint64_t length = pool_.capacity_of(block) / kChunk;
    for (std::uint64_t index = 0; index < length; ++index) visit(shared().tags.at(block.chunk + index));
  }

  Mapping mapping_;
  BlockPool pool_;
};

// Takes what lies at a place, as a consumer does: claims it, takes the block over, leaves the place.
std::optional<BlockRef> take_over(const TortureSite& site, std::atomic<std::uint64_t>& place, Owner me) {
  std::uint64_t seen = place;
  if (seen == 0 || unpack(seen).reader != kNobody) return std::nullopt;
  const BlockRef block = unpack(seen).block;
  if (!place.compare_exchange_strong(seen, pack({.block = block, .reader = me}))) return std::nullopt;
  site.pool().adopt(block, me);
  place = 0;
  return block;
}

class Torturer {
 public:
  Torturer(const TortureSite& site, Owner me) : site_(site), me_(me), random_(me) {}

  [[noreturn]] void run() {
    for (std::uint64_t round = 0;; ++round) {
      if (random_() % 3 == 0) {
        hand_over_or_take();
      } else if (blocks_.size() > random_() % 12) {
        free_one();
      } else {
        make_one(round);
      }
      ++site_.shared().progress.at(me_.self());
    }
  }

 private:
  void make_one(std::uint64_t round) {
    const auto block = site_.pool().allocate((1 + random_() % 30) * kChunk, me_.self(), me_);
    if (!block) return;
    site_.write_tags(*block, (round << 13U) + me_.self());
    blocks_.push_back(*block);
  }
  void free_one() {
    site_.check_tags(blocks_.back());
    site_.pool().free(blocks_.back(), me_.self(), me_);
    blocks_.pop_back();
  }
  void hand_over_or_take() {
    auto& place = site_.shared().places.at(random_() % kPlaces);
    std::uint64_t empty = 0;
    if (!blocks_.empty() && place.compare_exchange_strong(empty, pack({.block = blocks_.back()}))) {
      blocks_.pop_back();
    } else if (const auto block = take_over(site_, place, me_.self())) {
      site_.check_tags(*block);
      blocks_.push_back(*block);
    }
  }

  const TortureSite& site_;
  PoolMember me_;
  std::minstd_rand random_;
  std::vector<BlockRef> blocks_;
};

DROVER_PEER_BODY(use_pool_until_killed) {
  ChannelMessage message;
  ASSERT_EQ(peer.channel().receive(message, Deadline::never()), ReceiveResult::message);
  const TortureSite site(message.fds.at(0));
  Torturer(site, static_cast<Owner>(std::stoi(message.bytes))).run();
}

// What the keeper does after a death: first the places, then the pool.
void bury(const TortureSite& site, Owner dead) {
  auto& places = site.shared().places;
  for (auto& place : places) {
    std::uint64_t seen = place;
    if (seen != 0 && unpack(seen).reader == dead) place = pack({.block = unpack(seen).block});
  }
  site.pool().recover(dead, [&](BlockRef block) {
    return std::ranges::any_of(places, [&](const auto& place) {
      const std::uint64_t seen = place;
      return seen != 0 && unpack(seen).block == block;
    });
  });
}

TEST(BlockPoolTorture, processes_killed_at_random_instants_lose_nothing) {
  constexpr int kGroups = 40;
  constexpr int kSize = 6;
  const Fd file = make_memory_file("pool torture", kTortureBytes + pool_state_bytes(TortureSite::geometry()));
  const TortureSite site(file);
  format_pool(site.state(), TortureSite::geometry());
  std::mt19937 random(1);
  Owner next = 1;
  int deaths_with_the_lock = 0;
  for (int round = 0; round < kGroups; ++round) {
    PeerGroup group("use_pool_until_killed", {.mode = test::PeerMode::processes, .size = kSize});
    group.start();
    const Owner first = next;
    for (int rank = 0; rank < kSize; ++rank, ++next) {
      const int number = file.get();
      group.channel(rank).send(fmt::format("{}", next), {&number, 1});
    }
    for (int rank = 0; rank < kSize; ++rank) {
      const auto dead = static_cast<Owner>(first + rank);
      ASSERT_NO_FATAL_FAILURE(kill_at_random(group, rank, site.shared().progress.at(dead), random));
      if (holder_of(site.view().header.lock) == dead) ++deaths_with_the_lock;
      bury(site, dead);
    }
    for (const auto& outcome : group.wait(Deadline::never())) {
      ASSERT_EQ(outcome.kind, test::PeerOutcome::Kind::abandoned) << outcome.text;
    }
    ASSERT_EQ(audit(site.view()), "");
  }
  const PoolMember me(next);
  for (auto& place : site.shared().places) {
    if (const auto block = take_over(site, place, me.self())) {
      site.check_tags(*block);
      site.pool().free(*block, me.self(), me);
    }
  }
  EXPECT_EQ(audit(site.view()), "");
  EXPECT_EQ(site.pool().usage(me).largest_free_bytes, kTortureChunks * kChunk);
  EXPECT_GT(deaths_with_the_lock, 0);
}

}  // namespace
}  // namespace drover
