// ipc/queue/ring_layout.hpp: the bounded many-to-many ring as it lies in shared memory, and its rules.
//
//      claim_for_writing      publish           claim_for_reading         finish
//     free ---------> writing ---------> ready -------------> reading ---------> free, lap + 1
//                        |                                     |  ^
//         owner is dead  |                      owner is dead  |  |  claim_returned
//                        v                                     v  |
//                      skip --(any consumer)--> free, lap + 1   returned
//
//  1. A slot word holds lap, state and owner, and is claimed by one compare-and-swap. A claimed slot always names its
//     owner.
//  2. A slot in `writing` or `reading` belongs to its owner. Nobody else touches its record or its word, except
//     recovery, which starts only after the kernel has reported the owner's death.
//  3. The change to `ready` publishes the record. If the producer is killed before it, the record never existed.
//  4. Position p = lap * capacity + index is used for one record only: the lap of a slot never decreases, and within
//     a lap a slot never returns to `free` or `ready`. A compare-and-swap with a stale word therefore fails.
//     Positions have 64 bits. A word keeps 48 bits of the lap and compares cyclically, which is ambiguous only to a
//     participant that was stopped for 2^47 laps.
//  5. A participant claims a position for writing only if it saw all earlier ones claimed, and for reading only if it
//     saw all earlier ones taken, skipped or finished. By induction no unclaimed and no ready slot is ever passed. A
//     hint is such a place to start. A stale hint costs steps, never a record, so hints are stored without ordering,
//     and nothing is lost if their writer is killed.
//  6. A record that a dead consumer held does not become `ready` again, since others have passed it, but `returned`,
//     and `returned_epoch` is raised afterwards. A consumer that sees a new epoch searches all slots for returned
//     records until it finds none, and remembers the epoch that it read before that last search. So none is missed.
//  7. A record leaves by `finish`; its position is never used again. If the consumer is killed one instruction
//     earlier, the record is delivered again under the same position, by which the layer above detects it.
//  8. Recovery is derived from the words alone, so it may be repeated from the start.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "drover/ipc/membership.hpp"
#include "ipc/ledger/sent_lease.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/wake/bell.hpp"

namespace drover::ipc {

using SlotWord = std::uint64_t;
using Position = std::uint64_t;

/// The state of a slot within its lap.
enum class RingSlotState : std::uint8_t { free, writing, ready, reading, skip, returned };

inline constexpr unsigned kOwnerBits = 13;
inline constexpr unsigned kStateBits = 3;
inline constexpr unsigned kLapShift = kOwnerBits + kStateBits;
static_assert(kMaxParticipants < (1U << kOwnerBits));

constexpr SlotWord make_slot_word(std::uint64_t lap, RingSlotState state, Owner owner = kNobody) noexcept {
  return lap << kLapShift | static_cast<SlotWord>(state) << kOwnerBits | owner;
}
constexpr RingSlotState state_of(SlotWord word) noexcept {
  return static_cast<RingSlotState>(word >> kOwnerBits & ((1U << kStateBits) - 1));
}
constexpr Owner owner_of(SlotWord word) noexcept { return static_cast<Owner>(word & ((1U << kOwnerBits) - 1)); }
/// By how many laps the word is ahead of `lap`; negative if behind. Cyclic: rule 4.
constexpr std::int64_t laps_ahead(SlotWord word, std::uint64_t lap) noexcept {
  return static_cast<std::int64_t>((word >> kLapShift << kLapShift) - (lap << kLapShift)) >> kLapShift;
}
/// The same slot, one lap later and free.
constexpr SlotWord next_lap(SlotWord word) noexcept {
  return make_slot_word((word >> kLapShift) + 1, RingSlotState::free);
}

inline constexpr std::size_t kSmallBytes = 104;
inline constexpr std::size_t kFirstLineBytes = 48;  ///< of a small message, in the line of the slot's word
inline constexpr std::size_t kInlineBytes = 1024;

/// Where the bytes of a record are.
enum class Storage : std::uint8_t {
  small,     ///< in the slot itself
  inlined,   ///< in the slot's area of 1 KiB
  block,     ///< in a block of the queue's pool; `small` holds its BlockRef
  overflow,  ///< in an object of its own; `small` holds an OverflowRef
};

/// The number of leases in the head of a record that has more than its slot has room for.
inline constexpr std::size_t kManyLeases = 0xff;

/// Length and storage of a message, whether `put` copied it there, and its number of leases, in one word.
struct RecordHead {
  std::uint64_t word = 0;

  static RecordHead of(std::uint64_t bytes, Storage storage, bool is_copied = false) noexcept {
    return {.word = bytes << 16U | (is_copied ? 0x80U : 0U) | static_cast<std::uint64_t>(storage)};
  }
  [[nodiscard]] RecordHead with_leases(std::size_t number) const noexcept {
    return {.word = word | (number > kMostLeasesInSlot ? kManyLeases : number) << 8U};
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return word >> 16U; }
  /// As read from shared memory: may exceed kMostLeasesInSlot. `kManyLeases` if they lie behind the bytes.
  [[nodiscard]] std::size_t leases() const noexcept { return word >> 8U & 0xffU; }
  [[nodiscard]] bool has_many_leases() const noexcept { return leases() == kManyLeases; }
  /// As read from shared memory: may be no enumerator.
  [[nodiscard]] Storage storage() const noexcept { return static_cast<Storage>(word & 0x7fU); }
  [[nodiscard]] bool is_copied() const noexcept { return (word & 0x80U) != 0; }
};

/// A record without its inlined bytes: words, read and written one by one without order, because recovery reads
/// records that other participants may be replacing. The slot's word provides the order where it matters.
struct Record {
  std::atomic<std::uint64_t> head;                                      ///< RecordHead
  std::array<std::atomic<std::uint64_t>, kSmallBytes / 8> small_words;  ///< the message, or a reference to it

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
  /// Copies up to kSmallBytes out in whole words; `to` must have room for the last one.
  void load_small(void* to, std::size_t bytes) const noexcept {
    for (std::size_t at = 0; at < bytes; at += 8) {
      const std::uint64_t word = small_words[at / 8].load(std::memory_order_relaxed);
      std::memcpy(static_cast<std::byte*>(to) + at, &word, 8);
    }
  }
  /// Copies another record.
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

/// The word guards the rest: rule 2. Two lines, of which most messages use the first: measured to be faster than one,
/// presumably because cores fetch lines in pairs and would disturb the user of the next slot.
struct alignas(kCacheLine) RingSlot {
  std::atomic<SlotWord> word;
  Record record;
  std::atomic<std::uint64_t> taken_over;  ///< written by the reader only to own the line: cache_lines.hpp
};
static_assert(sizeof(RingSlot) == 2 * kCacheLine);

/// Precedes the slots. Each line is written by one side only, or rarely.
struct RingHead {
  alignas(kCacheLine) std::atomic<Position> tail_hint;
  alignas(kCacheLine) std::atomic<Position> head_hint;
  alignas(kCacheLine) std::atomic<std::uint64_t> returned_epoch;
  std::atomic<std::uint32_t> is_closed;
  Bell record_ready;
  Bell slot_free;
  Bell bytes_free;
  std::array<std::atomic<std::uint64_t>, (kMaxParticipants + 64) / 64>
      readers;  ///< of a pipe's end: one bit per participant
};
static_assert(sizeof(RingHead) == 8 * kCacheLine);

/// An entry of the in-flight table: a copy of a record whose slot was freed while a consumer processes it. Its states
/// are those of slots: free, writing (being filled), reading (held), returned. The lap counts the uses of the entry.
struct alignas(kCacheLine) Flight {
  std::atomic<SlotWord> word;
  std::atomic<Position> position;
  Record record;
};
static_assert(sizeof(Flight) == 2 * kCacheLine);

}  // namespace drover::ipc
