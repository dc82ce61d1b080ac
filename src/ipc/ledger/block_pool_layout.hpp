// ipc/ledger/block_pool_layout.hpp: the state of a pool of blocks as it lies in shared memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "drover/ipc/membership.hpp"
#include "ipc/ledger/size_classes.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/wake/cell_lock.hpp"

namespace drover::ipc {

/// The sizes of a pool; from the spec, never from shared memory.
struct PoolGeometry {
  std::uint64_t bytes = 0;        ///< of the data; a remainder smaller than a chunk is never used
  std::uint32_t chunk_bytes = 0;  ///< smallest block and alignment of all: a power of two, at least 64
};

/// The number of chunks. Throws `Errc::invalid_argument`, with the limits, for an impossible geometry.
[[nodiscard]] std::uint32_t chunk_count(const PoolGeometry& geometry);
/// Size of the state: a multiple of 64. Throws as `chunk_count`.
[[nodiscard]] std::size_t pool_state_bytes(const PoolGeometry& geometry);
/// Makes the state in zeroed memory. Touches its first and last pages only.
void format_pool(std::byte* state, const PoolGeometry& geometry);

/// A run of chunks that is one block or free, as the 64-bit word of its first chunk describes it. The other chunks of
/// the run keep words too: leftovers that read as free and preserve their generation.
struct Extent {
  bool is_used = false;          ///< whether it is a block
  std::uint32_t length = 0;      ///< in chunks; 0 in a word that was never written
  Owner owner = kNobody;         ///< of a block; `kNobody` for one that waits to be freed (an orphan)
  std::uint32_t generation = 0;  ///< number of blocks that have ended here, modulo 2^26

  friend bool operator==(const Extent&, const Extent&) = default;
};

inline constexpr unsigned kGenerationBits = 26;
inline constexpr unsigned kPoolOwnerBits = 13;
inline constexpr unsigned kLengthBits = kSizeBits;
inline constexpr std::uint32_t kGenerationMask = (1U << kGenerationBits) - 1;
inline constexpr std::uint32_t kPoolOwnerMask = (1U << kPoolOwnerBits) - 1;
inline constexpr std::uint32_t kMaxChunks = kMaxSize;
static_assert(1 + kLengthBits + kPoolOwnerBits + kGenerationBits == 64 && kMaxParticipants <= kPoolOwnerMask);

[[nodiscard]] constexpr std::uint64_t encode(const Extent& extent) noexcept {
  constexpr unsigned kLengthShift = kGenerationBits + kPoolOwnerBits;
  return (std::uint64_t{extent.is_used} << 63U) | (std::uint64_t{extent.length} << kLengthShift) |
         (std::uint64_t{extent.owner} << kGenerationBits) | extent.generation;
}

[[nodiscard]] constexpr Extent decode_extent(std::uint64_t word) noexcept {
  constexpr unsigned kLengthShift = kGenerationBits + kPoolOwnerBits;
  return {.is_used = (word >> 63U) != 0,
          .length = static_cast<std::uint32_t>(word >> kLengthShift) & kMaxChunks,
          .owner = static_cast<Owner>((word >> kGenerationBits) & kPoolOwnerMask),
          .generation = static_cast<std::uint32_t>(word) & kGenerationMask};
}

/// One for each chunk.
///
/// 1. Extents tile the pool: from chunk 0, each word's length leads to the next word, and the last extent ends with
///    the pool. Every change of the tiling is one store or compare-and-swap of one word, so this holds at every
///    instruction.
/// 2. A used word is the first of a block, never a leftover.
/// 3. Used words change by compare-and-swap only: a participant that adopts a block changes the owner without the
///    lock. Free words change under the lock only.
/// 4. The generation increases in the step that ends a block. A reference is valid while its chunk's word is used and
///    has its generation.
/// 5. Everything but the words is derived from them, guarded by the lock, and recomputed when a holder of the lock
///    has died. It is atomic, and read once per decision, because a peer may corrupt it at any time.
struct alignas(32) ChunkCell {
  std::atomic<std::uint64_t> word;  ///< an Extent; the truth
  std::atomic<std::uint32_t> next;  ///< of a free extent, at its first chunk: a Link in its list; of an orphan too
  std::atomic<std::uint32_t> previous;     ///< the other direction
  std::atomic<std::uint32_t> free_before;  ///< at the last chunk of an extent: its length if it is free, else 0
  std::atomic<std::uint32_t> leases;       ///< of a block in a slab, at its first chunk: how many there are on it
};
static_assert(sizeof(ChunkCell) == 32 && std::atomic<std::uint64_t>::is_always_lock_free);

/// A chunk's number plus one, so that zeroed memory holds no links; 0 is none.
using Link = std::uint32_t;
inline constexpr Link kNoLink = 0;

/// The start of the state; the cells follow.
struct PoolHeader {
  CellLockLayout lock;
  std::atomic<std::uint32_t> free_chunks;  ///< of all free extents
  std::atomic<std::uint32_t> used_blocks;  ///< orphans included
  std::atomic<Link> orphans;               ///< stack: the keeper pushes without the lock, the lock's holder takes all
  std::atomic<std::uint32_t> rows;         ///< a bit for each row with a list that is not empty
  std::array<std::atomic<std::uint32_t>, kSizeRows> columns;  ///< a bit for each list of a row that is not empty
  std::array<std::array<std::atomic<Link>, kSizeColumns>, kSizeRows> heads;  ///< of the lists of free extents
};
static_assert(sizeof(PoolHeader) % kCacheLine == 0);

/// A pool's state in this process's address space.
struct PoolView {
  PoolHeader& header;
  ChunkCell* cells;
  std::uint32_t chunks;  ///< number of cells

  PoolView(std::byte* state, std::uint32_t chunk_number) noexcept
      : header(*reinterpret_cast<PoolHeader*>(state)),
        cells(reinterpret_cast<ChunkCell*>(state + sizeof(PoolHeader))),
        chunks(chunk_number) {}
};

}  // namespace drover::ipc
