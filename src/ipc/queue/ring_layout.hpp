// ipc/queue/ring_layout.hpp: the bounded many-to-many ring as it lies in shared memory, and its rules.
//
//      claim_for_writing      publish           claim_for_reading         finish
//     free ---------> writing ---------> ready -------------> reading ---------> free, lap + 1
//                        |                                     |  ^
//         owner is dead  |                      owner is dead  |  |  claim_returned
//                        v                                     v  |
//                      skip --(any consumer)--> free, lap + 1   returned
//
//  1. A slot word holds lap, state and owner, and is taken by one compare-and-swap. There is no moment at which a
//     slot is taken and the taker unknown.
//  2. A slot in `writing` or `reading` belongs to its owner. Nobody else touches its record or its word, except
//     recovery, and recovery starts only after the kernel has reported the owner's death.
//  3. The change to `ready` is the publication. Killed before it, the record never existed; after it, it counts.
//  4. Position p = lap * capacity + index is used for one record only: the lap of a slot never goes back, and within
//     a lap a slot never returns to `free` or `ready`. A compare-and-swap with an out-of-date word therefore fails.
//     Positions have 64 bits. A word keeps 48 bits of the lap and compares cyclically, which is ambiguous only to a
//     participant that stood still for 2^47 laps.
//  5. A position is claimed for writing only by one who saw all before it claimed; for reading only by one who saw
//     all before it taken, skipped or finished. By induction nothing unclaimed, and nothing ready, is ever passed.
//     The hints are such places to begin looking. An old hint costs steps, never a record, so hints are stored
//     without care for order and nothing is lost when their writer is killed.
//  6. What a dead consumer held does not become `ready` again, since others have passed it, but `returned`, and
//     `returned_epoch` is raised afterwards. A consumer that sees a new epoch searches all slots for returned ones
//     until it finds none; it remembers the epoch it read before that last search. So nobody misses one.
//  7. A record leaves by `finish`, after which its position never comes again. Killed one instruction earlier, it
//     is delivered again under the same position, by which the layer above can tell.
//  8. Recovery is derived from the words alone, so it may be repeated from the start.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "drover/ipc/membership.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/wake/bell.hpp"

namespace drover {

using SlotWord = std::uint64_t;
using Position = std::uint64_t;

/// What a slot is, within its lap.
enum class SlotState : std::uint8_t { free, writing, ready, reading, skip, returned };

inline constexpr unsigned kOwnerBits = 13;
inline constexpr unsigned kStateBits = 3;
inline constexpr unsigned kLapShift = kOwnerBits + kStateBits;
static_assert(kMaxParticipants < (1U << kOwnerBits));

constexpr SlotWord make_slot_word(std::uint64_t lap, SlotState state, Owner owner = kNobody) noexcept {
  return lap << kLapShift | static_cast<SlotWord>(state) << kOwnerBits | owner;
}
constexpr SlotState state_of(SlotWord word) noexcept {
  return static_cast<SlotState>(word >> kOwnerBits & ((1U << kStateBits) - 1));
}
constexpr Owner owner_of(SlotWord word) noexcept { return static_cast<Owner>(word & ((1U << kOwnerBits) - 1)); }
/// By how many laps the word is ahead of `lap`; negative when behind. Cyclic: rule 4.
constexpr std::int64_t laps_ahead(SlotWord word, std::uint64_t lap) noexcept {
  return static_cast<std::int64_t>((word >> kLapShift << kLapShift) - (lap << kLapShift)) >> kLapShift;
}
/// The same slot, one lap later and free.
constexpr SlotWord next_lap(SlotWord word) noexcept {
  return make_slot_word((word >> kLapShift) + 1, SlotState::free);
}

inline constexpr std::size_t kSmallBytes = 104;
inline constexpr std::size_t kFirstLineBytes = 48;  ///< of a small message, in the line of the slot's word
inline constexpr std::size_t kInlineBytes = 1024;

/// Where the bytes of a record lie.
enum class Storage : std::uint8_t {
  small,     ///< in the slot itself
  inlined,   ///< in the area of 1 KiB that belongs to the slot
  block,     ///< in a block of the queue's pool; `small` holds its BlockRef
  overflow,  ///< in an object of its own; `small` holds an OverflowRef
};

/// Length and storage of a message, whether `put` copied it there, and how many leases go with it, in one word.
struct RecordHead {
  std::uint64_t word = 0;

  static RecordHead of(std::uint64_t bytes, Storage storage, bool is_copied = false) noexcept {
    return {.word = bytes << 16U | (is_copied ? 0x80U : 0U) | static_cast<std::uint64_t>(storage)};
  }
  [[nodiscard]] RecordHead with_leases(std::size_t number) const noexcept { return {.word = word | number << 8U}; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return word >> 16U; }
  /// As read from shared memory: may be more than kMostLeases.
  [[nodiscard]] std::size_t leases() const noexcept { return word >> 8U & 0xffU; }
  /// As read from shared memory: may be none of the enumerators.
  [[nodiscard]] Storage storage() const noexcept { return static_cast<Storage>(word & 0x7fU); }
  [[nodiscard]] bool is_copied() const noexcept { return (word & 0x80U) != 0; }
};

/// A record, apart from its inlined bytes: words, read and written one by one without order, since recovery looks at
/// records that the living may be replacing at that moment. The slot's word gives the order where it matters.
struct Record {
  std::atomic<std::uint64_t> head;                                      ///< RecordHead
  std::array<std::atomic<std::uint64_t>, kSmallBytes / 8> small_words;  ///< the message, or where it is

  void store_head(RecordHead value) noexcept { head.store(value.word, std::memory_order_relaxed); }
  [[nodiscard]] RecordHead load_head() const noexcept { return {head.load(std::memory_order_relaxed)}; }

  /// Copies up to kSmallBytes in.
  void store_small(const void* from, std::size_t bytes) noexcept {
    const auto* const source = static_cast<const std::byte*>(from);
    const std::size_t whole = bytes / 8;
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < whole; ++i) {
      std::memcpy(&word, source + 8 * i, 8);
      small_words[i].store(word, std::memory_order_relaxed);
    }
    if (bytes % 8 == 0) return;
    word = 0;
    std::memcpy(&word, source + 8 * whole, bytes % 8);
    small_words[whole].store(word, std::memory_order_relaxed);
  }
  /// Copies up to kSmallBytes out, in whole words: `to` has room for the last one.
  void load_small(void* to, std::size_t bytes) const noexcept {
    for (std::size_t at = 0; at < bytes; at += 8) {
      const std::uint64_t word = small_words[at / 8].load(std::memory_order_relaxed);
      std::memcpy(static_cast<std::byte*>(to) + at, &word, 8);
    }
  }
  /// A copy of another record.
  void copy_from(const Record& other) noexcept {
    store_head(other.load_head());
    for (std::size_t i = 0; i < small_words.size(); ++i) {
      small_words[i].store(other.small_words[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
  }
};
static_assert(sizeof(Record) == 112);

/// Names an overflow object.
struct OverflowRef {
  std::uint64_t generation;
  std::uint64_t offset;
  std::uint64_t slab;
};

/// One place for a record. The word guards the rest: rule 2. Two lines, of which most messages use the first:
/// that was measured to be faster than one, presumably since cores fetch lines in pairs and disturb whoever works on
/// the next slot.
struct alignas(kCacheLine) RingSlot {
  std::atomic<SlotWord> word;
  Record record;
  std::atomic<std::uint64_t> taken_over;  ///< written by the reader for its line alone: cache_lines.hpp
};
static_assert(sizeof(RingSlot) == 2 * kCacheLine);

/// What precedes the slots. Each line is written by one side only, or rarely.
struct RingHead {
  alignas(kCacheLine) std::atomic<Position> tail_hint;
  alignas(kCacheLine) std::atomic<Position> head_hint;
  alignas(kCacheLine) std::atomic<std::uint64_t> returned_epoch;
  std::atomic<std::uint32_t> is_closed;
  Bell record_ready;
  Bell slot_free;
  Bell bytes_free;
  std::array<std::atomic<std::uint64_t>, (kMaxParticipants + 64) / 64> readers;  ///< of a pipe's end: a bit for each
};
static_assert(sizeof(RingHead) == 8 * kCacheLine);

/// An entry of the in-flight table: a copy of a record whose slot has been freed while it is processed. States are
/// those of slots: free, writing (being filled), reading (held), returned; the lap counts uses of the entry.
struct alignas(kCacheLine) Flight {
  std::atomic<SlotWord> word;
  std::atomic<Position> position;
  Record record;
};
static_assert(sizeof(Flight) == 2 * kCacheLine);

}  // namespace drover
