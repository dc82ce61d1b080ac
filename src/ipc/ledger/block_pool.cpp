#include "ipc/ledger/block_pool.hpp"

#include <algorithm>
#include <bit>
#include <functional>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/ledger/block_pool_core.hpp"
#include "ipc/ledger/pool_lock.hpp"

namespace drover::ipc {
namespace {

using IsBlockReferenced = std::function<bool(BlockRef)>;

constexpr std::uint32_t kSmallestPoolChunk = 64;

[[noreturn]] void throw_stale(BlockRef block, const char* why) {
  throw Error(Errc::corrupt, fmt::format("block {} of generation {} {}", block.chunk, block.generation, why),
              "use a block only until it is freed");
}

[[noreturn]] void throw_not_owned(BlockRef block, Owner owner, Owner found) {
  throw Error(Errc::corrupt, fmt::format("block {} of generation {} belongs to participant {}, not {}", block.chunk,
                                         block.generation, found, owner));
}

// Calls `release` for every block of the dead to which nothing refers. Without the lock the tiling changes during the
// walk, but no block is missed: every visited place was the start of an extent at some moment of the walk, because a
// word is written before the tiling leads to it, and a leftover keeps the length of the free extent that began there
// when it became one. Blocks of the dead neither begin nor move meanwhile, so no such extent contains one.
template <class Release>
void for_each_block_of(Owner dead, const BlockPoolCore<>& core, const IsBlockReferenced& is_referenced,
                       Release release) {
  Extent extent;
  for (std::uint32_t chunk = 0; chunk < core.view().chunks; chunk += extent.length) {
    extent = core.checked(chunk);
    if (!extent.is_used || extent.owner != dead) continue;
    if (!is_referenced({.chunk = chunk, .generation = extent.generation})) release(chunk, extent);
  }
}

// Requires: the lock is held.
void free_blocks_of(Owner dead, const BlockPoolCore<>& core, const IsBlockReferenced& is_referenced) {
  core.free_orphans();
  for_each_block_of(dead, core, is_referenced, [&](std::uint32_t chunk, const Extent& extent) {
    static_cast<void>(core.free(chunk, extent));  // fails if a living participant has adopted it meanwhile
  });
}

// For when another participant holds the lock: it may be stopped, or dead and not yet reported.
void orphan_blocks_of(Owner dead, const BlockPoolCore<>& core, const IsBlockReferenced& is_referenced) {
  for_each_block_of(dead, core, is_referenced, [&](std::uint32_t chunk, const Extent& extent) {
    Extent orphan = extent;
    orphan.owner = kNobody;
    orphan.generation = (extent.generation + 1) & kGenerationMask;
    if (!core.exchange_word(chunk, extent, orphan)) return;
    const PoolView& view = core.view();
    Link first = view.header.orphans;
    do {
      view.cells[chunk].next = first;
    } while (!view.header.orphans.compare_exchange_weak(first, chunk + 1));
  });
}

}  // namespace

std::uint32_t chunk_count(const PoolGeometry& geometry) {
  const auto [bytes, chunk_bytes] = geometry;
  const bool is_chunk = std::has_single_bit(chunk_bytes) && chunk_bytes >= kSmallestPoolChunk;
  if (!is_chunk || bytes < chunk_bytes || bytes / chunk_bytes > kMaxChunks) {
    throw Error(
        Errc::invalid_argument, fmt::format("cannot make a pool of {} bytes in chunks of {}", bytes, chunk_bytes),
        fmt::format("a chunk is a power of two from {}; a pool has 1 to {} of them", kSmallestPoolChunk, kMaxChunks));
  }
  return static_cast<std::uint32_t>(bytes / chunk_bytes);
}

std::size_t pool_state_bytes(const PoolGeometry& geometry) {
  const std::size_t bytes = sizeof(PoolHeader) + chunk_count(geometry) * sizeof(ChunkCell);
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

void format_pool(std::byte* state, const PoolGeometry& geometry) {
  const BlockPoolCore<> core(PoolView(state, chunk_count(geometry)));
  const std::uint32_t chunks = core.view().chunks;
  core.view().header.free_chunks.store(chunks, std::memory_order_relaxed);  // not shared yet
  core.write_word(0, {.length = chunks});
  core.add_free(0, chunks);
}

BlockPool::BlockPool(std::byte* state, const PoolGeometry& geometry)
    : view_(state, chunk_count(geometry)),
      chunk_shift_(static_cast<unsigned>(std::countr_zero(geometry.chunk_bytes))) {}

std::uint64_t BlockPool::chunks_for(std::uint64_t bytes) const noexcept {
  return bytes == 0 ? 1 : ((bytes - 1) >> chunk_shift_) + 1;
}

bool BlockPool::is_too_large(std::uint64_t bytes) const noexcept { return chunks_for(bytes) > view_.chunks; }

std::optional<BlockRef> BlockPool::allocate(std::uint64_t bytes, Owner owner, const Membership& membership,
                                            Deadline deadline) const {
  require(owner != kNobody && owner <= kPoolOwnerMask, "a block belongs to a participant");
  if (is_too_large(bytes)) return std::nullopt;
  const PoolGuard guard(view_.header.lock, membership, deadline);
  if (!guard.is_held()) return std::nullopt;
  const auto block = BlockPoolCore<>(view_).allocate(static_cast<std::uint32_t>(chunks_for(bytes)), owner);
  if (!block) return std::nullopt;
  return BlockRef{.chunk = block->chunk, .generation = block->generation};
}

Extent BlockPool::used_extent(BlockRef block) const {
  if (block.chunk >= view_.chunks) throw_stale(block, "cannot exist");
  const Extent extent = BlockPoolCore<>(view_).extent_at(block.chunk);
  if (!extent.is_used || extent.generation != block.generation) throw_stale(block, "is no longer in use");
  if (extent.length == 0 || extent.length > view_.chunks - block.chunk) {
    throw_corrupt_pool("has an impossible length", block.chunk);
  }
  return extent;
}

void BlockPool::free(BlockRef block, Owner owner, const Membership& membership) const {
  const CellGuard guard(view_.header.lock, membership);
  const BlockPoolCore<> core(view_);
  core.free_orphans();
  for (;;) {
    const Extent extent = used_extent(block);
    if (extent.owner != owner) throw_not_owned(block, owner, extent.owner);
    if (core.free(block.chunk, extent)) return;
  }
}

void BlockPool::adopt(BlockRef block, Owner to) const {
  require(to != kNobody && to <= kPoolOwnerMask, "a block belongs to a participant");
  for (;;) {
    const Extent extent = used_extent(block);
    Extent adopted = extent;
    adopted.owner = to;
    if (BlockPoolCore<>(view_).exchange_word(block.chunk, extent, adopted)) return;
  }
}

std::uint64_t BlockPool::offset_of(BlockRef block) const {
  static_cast<void>(used_extent(block));
  return bytes_of(block.chunk);
}

std::uint64_t BlockPool::capacity_of(BlockRef block) const { return bytes_of(used_extent(block).length); }

Owner BlockPool::owner_of(BlockRef block) const { return used_extent(block).owner; }

std::uint64_t BlockPool::free_bytes() const noexcept {
  return bytes_of(std::min(view_.header.free_chunks.load(std::memory_order_relaxed), view_.chunks));
}

std::uint64_t BlockPool::used_blocks() const noexcept {
  return std::min(view_.header.used_blocks.load(std::memory_order_relaxed), view_.chunks);
}

PoolUsage BlockPool::usage(const Membership& membership) const {
  PoolUsage usage{.total_bytes = bytes_of(view_.chunks)};
  const CellGuard guard(view_.header.lock, membership);
  const BlockPoolCore<> core(view_);
  core.free_orphans();
  Extent extent;
  for (std::uint32_t chunk = 0; chunk < view_.chunks; chunk += extent.length) {
    extent = core.checked(chunk);
    const std::uint64_t bytes = bytes_of(extent.length);
    if (extent.is_used) {
      ++usage.used_blocks;
      usage.owner_bytes[extent.owner] += bytes;
    } else {
      usage.free_bytes += bytes;
      usage.largest_free_bytes = std::max(usage.largest_free_bytes, bytes);
    }
  }
  return usage;
}

void BlockPool::recover(Owner dead, const IsBlockReferenced& is_referenced) const {
  CellLockLayout& lock = view_.header.lock;
  const BlockPoolCore<> core(view_);
  const LockOfTheDead release(lock, dead);
  if (holder_of(lock) == dead) {
    rebuild(core);
  } else if (!try_claim_for(dead, lock)) {
    orphan_blocks_of(dead, core, is_referenced);
    return;
  }
  free_blocks_of(dead, core, is_referenced);
}

void BlockPool::wake_all() const noexcept { drover::ipc::wake_all(view_.header.lock); }

}  // namespace drover::ipc
