// ipc/ledger/free_lists.hpp: the free extents of a pool by size, to find one that fits in constant time.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>

#include "ipc/ledger/block_pool_layout.hpp"

namespace drover::ipc {

/// Throws `Errc::corrupt`: the state of a pool is impossible at `chunk`.
[[noreturn]] void throw_corrupt_pool(const char* what, std::uint64_t chunk);

/// Called before each write to the state of a pool. A test substitutes its own, to see every state in which a death
/// can leave the pool.
struct NoSteps {
  static constexpr void before_write() noexcept {}
};

/// Writes data that the lock guards, or a free word. `release` keeps words in program order; data under the lock
/// needs no order of its own.
template <class Steps, class T>
void write(std::atomic<T>& where, T value, std::memory_order order = std::memory_order_relaxed) {
  Steps::before_write();
  where.store(value, order);
}

/// A view of the lists. Requires: the lock is held. Every link is checked before it is followed, and every list
/// before it is changed: after `Errc::corrupt` it is as before.
template <class Steps>
class FreeLists {
 public:
  explicit FreeLists(const PoolView& view) noexcept : view_(view) {}

  /// A free extent of at least `length` chunks. Constant time if some non-empty class holds only such extents;
  /// otherwise a walk through the one class that holds longer and shorter ones: at most one entry per 64 chunks of
  /// the pool.
  [[nodiscard]] std::optional<std::uint32_t> find(std::uint32_t length) const {
    const std::optional<SizeClass> fitting = first_list(class_at_least(length));
    if (fitting) return chunk_in(head(*fitting).load(std::memory_order_relaxed));
    return smallest_in(class_of(length)) < length ? search(class_of(length), length) : std::nullopt;
  }

  /// Whether `find` will probably succeed. Requires no lock, and is a guess without it.
  [[nodiscard]] bool seem_to_have(std::uint32_t length) const noexcept {
    const SizeClass from = class_of(length);
    if ((columns_of(from.row) & (~0U << from.column)) != 0) return true;
    return (view_.header.rows.load(std::memory_order_relaxed) & kAllRows & (~1U << from.row)) != 0;
  }

  /// Puts an extent into its list.
  void insert(std::uint32_t chunk, std::uint32_t length) const {
    const SizeClass in = class_of(length);
    const Link first = head(in).load(std::memory_order_relaxed);
    ChunkCell* const second = cell_at(first);
    write<Steps>(view_.cells[chunk].next, first);
    write<Steps>(view_.cells[chunk].previous, kNoLink);
    if (second != nullptr) write<Steps>(second->previous, link_to(chunk));
    write<Steps>(head(in), link_to(chunk));
    if (second == nullptr) mark(in);
  }

  /// Takes an extent out of its list.
  void remove(std::uint32_t chunk, std::uint32_t length) const {
    const Place place = place_of(chunk, length);
    write<Steps>(*place.forward, place.next);
    if (place.after != nullptr) write<Steps>(place.after->previous, place.previous);
    if (place.next == kNoLink && place.previous == kNoLink) unmark(class_of(length));
  }

  /// Throws what `remove` would throw.
  void check(std::uint32_t chunk, std::uint32_t length) const { static_cast<void>(place_of(chunk, length)); }

  /// Empties all lists.
  void clear() const {
    write<Steps>(view_.header.rows, 0U);
    for (auto& columns : view_.header.columns) write<Steps>(columns, 0U);
    for (auto& row : view_.header.heads) {
      for (auto& first : row) write<Steps>(first, kNoLink);
    }
  }

 private:
  static constexpr std::uint32_t kAllRows = (1U << kSizeRows) - 1;

  // An extent in its list.
  struct Place {
    std::atomic<Link>* forward;  // the link to it
    ChunkCell* after;            // the extent behind it, or nullptr
    Link next;
    Link previous;
  };

  [[nodiscard]] Place place_of(std::uint32_t chunk, std::uint32_t length) const {
    const Link next = view_.cells[chunk].next.load(std::memory_order_relaxed);
    const Link previous = view_.cells[chunk].previous.load(std::memory_order_relaxed);
    ChunkCell* const after = cell_at(next);
    ChunkCell* const before = cell_at(previous);
    std::atomic<Link>* const forward = before != nullptr ? &before->next : &head(class_of(length));
    if (forward->load(std::memory_order_relaxed) != link_to(chunk) ||
        (after != nullptr && after->previous.load(std::memory_order_relaxed) != link_to(chunk))) {
      throw_corrupt_pool("is free but not where its list should have it", chunk);
    }
    return {.forward = forward, .after = after, .next = next, .previous = previous};
  }

  static Link link_to(std::uint32_t chunk) noexcept { return chunk + 1; }

  [[nodiscard]] std::atomic<Link>& head(SizeClass in) const noexcept { return view_.header.heads[in.row][in.column]; }

  [[nodiscard]] std::uint32_t chunk_in(Link link) const {
    if (link == kNoLink || link > view_.chunks) throw_corrupt_pool("is not a chunk but a list leads to it", link);
    return link - 1;
  }

  [[nodiscard]] ChunkCell* cell_at(Link link) const {
    return link == kNoLink ? nullptr : &view_.cells[chunk_in(link)];
  }

  // The first non-empty list from `from` on.
  [[nodiscard]] std::optional<SizeClass> first_list(SizeClass from) const {
    if (from.row >= kSizeRows) return std::nullopt;
    std::uint32_t columns = columns_of(from.row) & (~0U << from.column);
    if (columns == 0) {
      const std::uint32_t rows = view_.header.rows.load(std::memory_order_relaxed) & kAllRows & (~1U << from.row);
      if (rows == 0) return std::nullopt;
      from.row = static_cast<std::uint32_t>(std::countr_zero(rows));
      columns = columns_of(from.row);
      if (columns == 0) throw_corrupt_pool("is a row of lists that are all empty", from.row);
    }
    return SizeClass{.row = from.row, .column = static_cast<std::uint32_t>(std::countr_zero(columns))};
  }

  [[nodiscard]] std::uint32_t columns_of(std::uint32_t row) const noexcept {
    return view_.header.columns[row].load(std::memory_order_relaxed);
  }

  [[nodiscard]] std::optional<std::uint32_t> search(SizeClass in, std::uint32_t length) const {
    std::uint32_t left = view_.chunks / smallest_in(in);
    for (Link link = head(in).load(std::memory_order_relaxed); link != kNoLink; --left) {
      const std::uint32_t chunk = chunk_in(link);
      if (left == 0) throw_corrupt_pool("is in a list that does not end", chunk);
      if (decode_extent(view_.cells[chunk].word.load(std::memory_order_relaxed)).length >= length) return chunk;
      link = view_.cells[chunk].next.load(std::memory_order_relaxed);
    }
    return std::nullopt;
  }

  void mark(SizeClass in) const {
    write<Steps>(view_.header.columns[in.row], columns_of(in.row) | (1U << in.column));
    write<Steps>(view_.header.rows, view_.header.rows.load(std::memory_order_relaxed) | (1U << in.row));
  }

  void unmark(SizeClass in) const {
    const std::uint32_t columns = columns_of(in.row) & ~(1U << in.column);
    write<Steps>(view_.header.columns[in.row], columns);
    if (columns != 0) return;
    write<Steps>(view_.header.rows, view_.header.rows.load(std::memory_order_relaxed) & ~(1U << in.row));
  }

  PoolView view_;
};

}  // namespace drover::ipc
