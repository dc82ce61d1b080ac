// tests/ipc/ledger/pool_support.hpp: what the tests of block pools share: state in private memory, a member, an
// audit.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/ledger/block_pool.hpp"
#include "ipc/ledger/block_pool_core.hpp"

namespace drover::test {

inline constexpr std::uint32_t kChunk = 1024;  ///< bytes per chunk in all these pools

/// A pool of that many chunks.
constexpr ipc::PoolGeometry chunks(std::uint32_t number) {
  return {.bytes = std::uint64_t{number} * kChunk, .chunk_bytes = kChunk};
}

/// A participant with nothing but a number, whose session may be over.
class PoolMember final : public Membership {
 public:
  explicit PoolMember(Owner owner) { set_self(owner); }
  using Membership::create;
  OpenObject create(const ObjectSpec&) override { throw Error(Errc::unsupported, "a pool member makes no objects"); }
  OpenObject open(const ObjectHandle&) override { throw Error(Errc::unsupported, "a pool member opens no objects"); }
  void close(const ObjectHandle&) noexcept override {}
  void check() const override {
    if (is_over) throw Error(Errc::peer_lost, "the session of the pool test is over");
  }
  [[nodiscard]] Population population() const noexcept override { return {}; }

  std::atomic<bool> is_over{false};
};

/// A state in this process's memory instead of shared memory; copies are pictures of a moment.
class PrivateState {
 public:
  explicit PrivateState(std::size_t size) : lines_(size / ipc::kCacheLine) {}
  [[nodiscard]] std::byte* data() noexcept { return lines_.front().bytes.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return lines_.size() * ipc::kCacheLine; }
  /// What the words hold now.
  [[nodiscard]] std::string bytes() { return {reinterpret_cast<const char*>(data()), size()}; }

 private:
  struct alignas(ipc::kCacheLine) Line {
    std::array<std::byte, ipc::kCacheLine> bytes{};
  };
  std::vector<Line> lines_;
};

/// The state of a pool.
class PoolMemory : public PrivateState {
 public:
  explicit PoolMemory(const ipc::PoolGeometry& geometry)
      : PrivateState(ipc::pool_state_bytes(geometry)), geometry_(geometry) {
    ipc::format_pool(data(), geometry);
  }
  [[nodiscard]] const ipc::PoolGeometry& geometry() const noexcept { return geometry_; }
  [[nodiscard]] ipc::BlockPool pool() { return {data(), geometry_}; }
  [[nodiscard]] ipc::PoolView view() { return {data(), ipc::chunk_count(geometry_)}; }

 private:
  ipc::PoolGeometry geometry_;
};

/// One step of a walk over the tiling.
struct PlacedExtent {
  std::uint32_t chunk = 0;
  ipc::Extent extent;
};

/// The tiling; its last element has length 0 where it breaks off.
inline std::vector<PlacedExtent> tiling_of(const ipc::PoolView& view) {
  std::vector<PlacedExtent> tiling;
  for (std::uint32_t chunk = 0; chunk < view.chunks;) {
    const PlacedExtent placed{.chunk = chunk, .extent = ipc::decode_extent(view.cells[chunk].word.load())};
    const bool is_possible = placed.extent.length > 0 && placed.extent.length <= view.chunks - chunk;
    tiling.push_back(is_possible ? placed : PlacedExtent{.chunk = chunk, .extent = {}});
    if (!is_possible) break;
    chunk += placed.extent.length;
  }
  return tiling;
}

/// Checks that all derived state agrees with the words. Empty if so.
class PoolAudit {
 public:
  explicit PoolAudit(const ipc::PoolView& view) : view_(view), tiling_(tiling_of(view)) {}

  [[nodiscard]] std::string run() {
    check_words();
    check_extents();
    check_lists();
    check_counters();
    return std::move(problems_);
  }

 private:
  void expect(bool holds, const std::string& problem) {
    if (!holds) problems_ += problem + "\n";
  }

  void check_words() {
    expect(tiling_.back().extent.length != 0, fmt::format("the tiling breaks off at {}", tiling_.back().chunk));
    for (const auto& [chunk, extent] : tiling_) {
      for (std::uint32_t inside = 1; inside < extent.length; ++inside) {
        expect(!ipc::decode_extent(view_.cells[chunk + inside].word.load()).is_used,
               fmt::format("{} is used inside {}", chunk + inside, chunk));
      }
    }
  }

  void check_extents() {
    bool was_free = false;
    for (const auto& [chunk, extent] : tiling_) {
      if (extent.length == 0) return;
      expect(extent.is_used == (extent.owner != kNobody),
             fmt::format("{} is an orphan or free with an owner", chunk));
      expect(extent.is_used || !was_free, fmt::format("{} and the extent before it are free", chunk));
      const std::uint32_t end_says = view_.cells[chunk + extent.length - 1].free_before.load();
      expect(end_says == (extent.is_used ? 0 : extent.length), fmt::format("{} has the end of another", chunk));
      was_free = !extent.is_used;
    }
  }

  void check_list(ipc::SizeClass in) {
    ipc::Link before = ipc::kNoLink;
    for (ipc::Link link = view_.header.heads[in.row][in.column]; link != ipc::kNoLink;) {
      if (link > view_.chunks || !listed_.insert(link - 1).second) return expect(false, "a list has a bad link");
      const ipc::ChunkCell& cell = view_.cells[link - 1];
      const ipc::Extent extent = ipc::decode_extent(cell.word.load());
      expect(!extent.is_used && ipc::class_of(extent.length) == in, fmt::format("{} is in a wrong list", link - 1));
      expect(cell.previous == before, fmt::format("{} has a wrong link back", link - 1));
      before = std::exchange(link, cell.next.load());
    }
    const bool is_marked = (view_.header.columns[in.row] >> in.column & 1U) != 0;
    expect(is_marked == (before != ipc::kNoLink), fmt::format("list {}/{} is marked wrongly", in.row, in.column));
  }

  void check_lists() {
    for (std::uint32_t row = 0; row < ipc::kSizeRows; ++row) {
      for (std::uint32_t column = 0; column < ipc::kSizeColumns; ++column) check_list({.row = row, .column = column});
      const bool is_marked = (view_.header.rows >> row & 1U) != 0;
      expect(is_marked == (view_.header.columns[row] != 0), fmt::format("row {} is marked wrongly", row));
    }
    std::set<std::uint32_t> free;
    for (const auto& [chunk, extent] : tiling_) {
      if (!extent.is_used) free.insert(chunk);
    }
    expect(free == listed_, "the lists hold other extents than the free ones");
  }

  void check_counters() {
    std::uint32_t free_chunks = 0;
    std::uint32_t used_blocks = 0;
    for (const auto& [_, extent] : tiling_) {
      (extent.is_used ? used_blocks : free_chunks) += extent.is_used ? 1 : extent.length;
    }
    expect(view_.header.free_chunks == free_chunks, "free chunks are counted wrongly");
    expect(view_.header.used_blocks == used_blocks, "used blocks are counted wrongly");
    expect(view_.header.orphans == ipc::kNoLink, "orphans wait");
    expect(ipc::holder_of(view_.header.lock) == kNobody, "the lock is held");
  }

  ipc::PoolView view_;
  std::vector<PlacedExtent> tiling_;
  std::set<std::uint32_t> listed_;
  std::string problems_;
};

/// Empty if the pool is consistent and not in use.
[[nodiscard]] inline std::string audit(const ipc::PoolView& view) { return PoolAudit(view).run(); }

/// A predicate for `recover`: nothing refers to any block.
inline bool never_referenced(ipc::BlockRef) { return false; }

}  // namespace drover::test
