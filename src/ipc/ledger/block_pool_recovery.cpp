// What the keeper does with a pool after a death.
#include <functional>
#include <thread>

#include "ipc/ledger/block_pool.hpp"
#include "ipc/ledger/pool_recovery.hpp"
#include "ipc/wake/bell.hpp"

namespace drover {
namespace {

using IsReferenced = std::function<bool(BlockRef)>;

// Makes everything anew that is derived from the words. Requires: the lock is held, by the dead.
class Rebuild {
 public:
  explicit Rebuild(const PoolCore<>& core) noexcept : core_(core) {}

  // Where the tiling breaks off because it was spoiled, what lies before that place is whole, the rest out of use.
  void run() {
    PoolHeader& header = core_.view().header;
    core_.lists().clear();
    header.orphans = kNoLink;
    walk();
    end_free();
    header.free_chunks = free_chunks_;
    header.used_blocks = used_blocks_;
  }

 private:
  void walk() {
    const PoolView& view = core_.view();
    std::uint32_t length = 0;
    for (std::uint32_t chunk = 0; chunk < view.chunks; chunk += length) {
      const Extent extent = core_.extent_at(chunk);
      length = extent.length;
      if (length == 0 || length > view.chunks - chunk) return;
      if (extent.is_used && !PoolCore<>::is_orphan(extent)) {
        add_used(chunk, length);
      } else {
        add_free(chunk, extent);
      }
    }
  }

  void add_used(std::uint32_t chunk, std::uint32_t length) {
    end_free();
    core_.view().cells[chunk + length - 1].free_before = 0;
    ++used_blocks_;
  }

  // Unites it with what is free before it, if the dead did not come to that.
  void add_free(std::uint32_t chunk, const Extent& extent) {
    if (extent.is_used) {
      const std::uint32_t next_generation = (extent.generation + 1) & kGenerationMask;
      core_.write_word(chunk, {.length = extent.length, .generation = next_generation});
    }
    if (run_length_ == 0) run_start_ = chunk;
    run_length_ += extent.length;
  }

  void end_free() {
    if (run_length_ == 0) return;
    core_.write_word(run_start_, {.length = run_length_, .generation = core_.extent_at(run_start_).generation});
    core_.add_free(run_start_, run_length_);
    free_chunks_ += run_length_;
    run_length_ = 0;
  }

  const PoolCore<>& core_;
  std::uint32_t run_start_ = 0;
  std::uint32_t run_length_ = 0;
  std::uint32_t free_chunks_ = 0;
  std::uint32_t used_blocks_ = 0;
};

// Calls `release` for every block of the dead to which nothing refers. Without the lock the tiling changes meanwhile,
// and still none is passed over. Every place that is looked at was the beginning of an extent at some moment of the
// walk: a word is written before the tiling leads to it, and a leftover keeps the length of the free extent that
// began there when it became one. Blocks of the dead neither begin nor move during the walk, so they are in none of
// those.
template <class Release>
void for_each_block_of(Owner dead, const PoolCore<>& core, const IsReferenced& is_referenced, Release release) {
  Extent extent;
  for (std::uint32_t chunk = 0; chunk < core.view().chunks; chunk += extent.length) {
    extent = core.checked(chunk);
    if (!extent.is_used || extent.owner != dead) continue;
    if (!is_referenced({.chunk = chunk, .generation = extent.generation})) release(chunk, extent);
  }
}

// Requires: the lock is held.
void free_blocks_of(Owner dead, const PoolCore<>& core, const IsReferenced& is_referenced) {
  core.free_orphans();
  for_each_block_of(dead, core, is_referenced, [&](std::uint32_t chunk, const Extent& extent) {
    static_cast<void>(core.free(chunk, extent));  // not if somebody alive has taken it over at this moment
  });
}

// For when another holds the lock, who may be stopped, or dead and not yet reported.
void orphan_blocks_of(Owner dead, const PoolCore<>& core, const IsReferenced& is_referenced) {
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

void rebuild(const PoolCore<>& core) { Rebuild(core).run(); }

bool try_claim_for(Owner dead, CellLockLayout& lock) {
  constexpr int kRounds = 3;
  constexpr int kLooks = 200;
  for (int round = 0; round < kRounds; ++round) {
    for (int look = 0; look < kLooks; ++look) {
      if (try_lock(lock, dead, 0)) return true;
      relax();
    }
    std::this_thread::yield();  // to the holder, if it waits for this core
  }
  return false;
}

void BlockPool::recover(Owner dead, const IsReferenced& is_referenced) const {
  CellLockLayout& lock = view_.header.lock;
  const PoolCore<> core(view_);
  const LockOfTheDead release(lock, dead);
  if (holder_of(lock) == dead) {
    rebuild(core);
  } else if (!try_claim_for(dead, lock)) {
    orphan_blocks_of(dead, core, is_referenced);
    return;
  }
  free_blocks_of(dead, core, is_referenced);
}

}  // namespace drover
