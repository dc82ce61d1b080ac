// ipc/ledger/block_pool_core.hpp: how the state of a pool changes, step by step. What BlockPool does under its lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "ipc/ledger/block_pool_layout.hpp"
#include "ipc/ledger/free_lists.hpp"

namespace drover::ipc {

/// A view of the state. Requires, unless noted: the lock is held. Throws `Errc::corrupt` if the state is impossible.
template <class Steps = NoSteps>
class BlockPoolCore {
 public:
  explicit BlockPoolCore(const PoolView& view) noexcept : view_(view), lists_(view) {}

  /// A new block.
  struct Block {
    std::uint32_t chunk;
    std::uint32_t generation;
  };

  /// A block of `length` chunks; nullopt if no free extent is that long.
  [[nodiscard]] std::optional<Block> allocate(std::uint32_t length, Owner owner) const {
    free_orphans();
    const auto chunk = lists_.find(length);
    if (!chunk) return std::nullopt;
    const Extent extent = checked_free(*chunk);
    if (extent.length < length) throw_corrupt_pool("is in a list of longer extents", *chunk);
    lists_.remove(*chunk, extent.length);
    cut(*chunk, extent.length, length);
    // The commit: before it the chunks are a free extent, after it a block with an owner.
    write_word(*chunk, {.is_used = true, .length = length, .owner = owner, .generation = extent.generation});
    if (length < extent.length) lists_.insert(*chunk + length, extent.length - length);
    count(view_.header.free_chunks, 0U - length);
    count(view_.header.used_blocks, 1U);
    return Block{.chunk = *chunk, .generation = extent.generation};
  }

  /// Frees the block at `chunk` if its word is still `expected`, and coalesces it with free neighbours. Returns
  /// whether it did; if not, nothing has changed.
  [[nodiscard]] bool free(std::uint32_t chunk, const Extent& expected) const {
    if (!fits(chunk, expected.length)) throw_corrupt_pool("has an impossible length", chunk);
    const std::uint32_t left = free_length_before(chunk);
    const std::uint32_t right = free_length_at(chunk + expected.length);
    const std::uint32_t end = chunk + expected.length + right;
    const Extent freed{.length = expected.length + right, .generation = (expected.generation + 1) & kGenerationMask};
    remove_neighbours(chunk, left, chunk + expected.length, right);
    // The commit: an exchange, since the owner may change without the lock.
    if (!exchange_word(chunk, expected, freed)) {
      if (right != 0) lists_.insert(chunk + expected.length, right);
      if (left != 0) lists_.insert(chunk - left, left);
      return false;
    }
    if (left != 0) {
      write_word(chunk - left, {.length = end - chunk + left, .generation = generation_at(chunk - left)});
    }
    add_free(chunk - left, end - chunk + left);
    count(view_.header.free_chunks, expected.length);
    count(view_.header.used_blocks, 0U - 1U);
    return true;
  }

  /// Frees the blocks that the keeper has marked while another participant held the lock.
  void free_orphans() const {
    if (view_.header.orphans.load(std::memory_order_relaxed) == kNoLink) return;
    Steps::before_write();
    for (Link link = view_.header.orphans.exchange(kNoLink); link != kNoLink;) {
      if (link > view_.chunks) throw_corrupt_pool("is not a chunk but is listed as an orphan", link);
      const std::uint32_t chunk = link - 1;
      link = view_.cells[chunk].next.load(std::memory_order_relaxed);
      const Extent orphan = extent_at(chunk);
      if (!is_orphan(orphan) || !free(chunk, orphan)) {
        throw_corrupt_pool("is listed as an orphan but is in use", chunk);
      }
    }
  }

  /// The extent that starts at `chunk`. Requires: the tiling leads there.
  [[nodiscard]] Extent checked(std::uint32_t chunk) const {
    const Extent extent = extent_at(chunk);
    if (!fits(chunk, extent.length)) throw_corrupt_pool("has an impossible length", chunk);
    return extent;
  }

  /// The extent in a chunk's word. Requires no lock.
  [[nodiscard]] Extent extent_at(std::uint32_t chunk) const noexcept {
    return decode_extent(view_.cells[chunk].word.load());
  }

  /// Changes a used word if it is still `expected`. Requires no lock.
  [[nodiscard]] bool exchange_word(std::uint32_t chunk, const Extent& expected, const Extent& wanted) const {
    std::uint64_t seen = encode(expected);
    Steps::before_write();
    return view_.cells[chunk].word.compare_exchange_strong(seen, encode(wanted));
  }

  /// Whether a block has no owner and waits to be freed.
  [[nodiscard]] static bool is_orphan(const Extent& extent) noexcept {
    return extent.is_used && extent.owner == kNobody;
  }

  /// Writes the derived state of a free extent: its end and its place in a list.
  void add_free(std::uint32_t chunk, std::uint32_t length) const {
    write<Steps>(view_.cells[chunk + length - 1].free_before, length);
    lists_.insert(chunk, length);
  }

  /// Writes a free word, or makes it used. In program order, since the tiling must hold at every step. Only the
  /// holder of the lock changes free words.
  void write_word(std::uint32_t chunk, const Extent& extent) const {
    write<Steps>(view_.cells[chunk].word, encode(extent), std::memory_order_release);
  }

  [[nodiscard]] const PoolView& view() const noexcept { return view_; }
  [[nodiscard]] const FreeLists<Steps>& lists() const noexcept { return lists_; }

 private:
  [[nodiscard]] bool fits(std::uint32_t chunk, std::uint32_t length) const noexcept {
    return length > 0 && length <= view_.chunks - chunk;
  }

  [[nodiscard]] std::uint32_t generation_at(std::uint32_t chunk) const noexcept {
    return extent_at(chunk).generation;
  }

  // A free extent that a list leads to. Both its ends are checked: a leftover inside another extent has at most one.
  [[nodiscard]] Extent checked_free(std::uint32_t chunk) const {
    const Extent extent = checked(chunk);
    const auto& end = view_.cells[chunk + extent.length - 1].free_before;
    if (extent.is_used || end.load(std::memory_order_relaxed) != extent.length) {
      throw_corrupt_pool("is in a list of free extents but is not free", chunk);
    }
    return extent;
  }

  // Removes both from their lists, or neither.
  void remove_neighbours(std::uint32_t chunk, std::uint32_t left, std::uint32_t right_chunk,
                         std::uint32_t right) const {
    if (left != 0) lists_.check(chunk - left, left);
    if (right != 0) lists_.remove(right_chunk, right);
    if (left != 0) lists_.remove(chunk - left, left);
  }

  // Prepares a free extent for a block at its front. Writes only inside the extent, where nobody reads.
  void cut(std::uint32_t chunk, std::uint32_t whole, std::uint32_t length) const {
    if (length < whole) {
      const Extent leftover = extent_at(chunk + length);
      if (leftover.is_used) throw_corrupt_pool("is in use inside a free extent", chunk + length);
      write_word(chunk + length, {.length = whole - length, .generation = leftover.generation});
      write<Steps>(view_.cells[chunk + whole - 1].free_before, whole - length);
    }
    write<Steps>(view_.cells[chunk + length - 1].free_before, 0U);
  }

  // Length of the free extent that ends before `chunk`; 0 if there is none.
  [[nodiscard]] std::uint32_t free_length_before(std::uint32_t chunk) const {
    if (chunk == 0) return 0;
    const std::uint32_t length = view_.cells[chunk - 1].free_before.load(std::memory_order_relaxed);
    if (length == 0) return 0;
    if (length > chunk) throw_corrupt_pool("follows a free extent of impossible length", chunk);
    const Extent before = extent_at(chunk - length);
    if (before.is_used || before.length != length) throw_corrupt_pool("does not follow a free extent", chunk);
    return length;
  }

  // Length of the free extent that begins at `chunk`, which may be the end of the pool; 0 if there is none.
  [[nodiscard]] std::uint32_t free_length_at(std::uint32_t chunk) const {
    if (chunk == view_.chunks) return 0;
    const Extent extent = checked(chunk);
    return extent.is_used ? 0 : extent.length;
  }

  static void count(std::atomic<std::uint32_t>& counter, std::uint32_t change) {
    write<Steps>(counter, counter.load(std::memory_order_relaxed) + change);
  }

  PoolView view_;
  FreeLists<Steps> lists_;
};

/// Recomputes everything that is derived from the words of a pool. Requires: the lock is held, by the dead.
void rebuild(const BlockPoolCore<>& core);

}  // namespace drover::ipc
