// ipc/queue/ring.hpp: the operations on a ring. The rules are in ring_layout.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "ipc/queue/ring_layout.hpp"

namespace drover::ipc {

/// Where one handle continues its search. In private memory; races between threads are harmless, since every value
/// that a thread may find is a valid place to start (rule 5).
struct RingCursors {
  alignas(kCacheLine) std::atomic<Position> write{
      0};  // own line: threads that put and threads that get share a handle
  alignas(kCacheLine) std::atomic<Position> read{0};
  std::atomic<std::uint64_t> seen_epoch{0};
};

/// What a search for a record found besides.
struct ReadScan {
  bool has_freed = false;   ///< it freed slots of dead producers: wake producers
  bool is_pending = false;  ///< the next record is being written: the ring is not drained
};

/// A ring in this process's address space. Owns nothing. No operation waits, makes a system call or rings a bell.
class Ring {
 public:
  /// `capacity` comes from the spec.
  Ring(RingHead& head, RingSlot* slots, std::uint64_t capacity) noexcept
      : head_(&head), slots_(slots), capacity_(capacity), shift_(shift_for(capacity)) {}

  /// Claims the first free slot for `me`; nullopt if the ring is full. Throws `Errc::corrupt` if the state is
  /// impossible: no slot is ever more than one lap behind the search (rule 5).
  [[nodiscard]] std::optional<Position> claim_for_writing(RingCursors& cursors, Owner me) const;
  /// Whether the next slot is free, or was claimed by another producer meanwhile: worth another attempt.
  [[nodiscard]] bool has_room(const RingCursors& cursors) const noexcept;
  /// Whether a good part of the ring is free behind the place where `claim_for_writing` found it full. A producer
  /// that takes every slot as soon as it is freed contends with the consumer for its cache line.
  [[nodiscard]] bool has_much_room(const RingCursors& cursors) const noexcept;
  /// Publishes the record of a slot in `writing`. Throws `Errc::internal` if the slot is no longer `me`'s.
  void publish(Position position, Owner me) const {
    const std::uint64_t lap = lap_of(position);
    replace_own(position, make_slot_word(lap, RingSlotState::writing, me), make_slot_word(lap, RingSlotState::ready));
  }
  /// Abandons a slot in `writing`; nobody will see its record.
  void abandon(Position position, Owner me) const;
  /// Claims the oldest published record for `me`; nullopt if there is none.
  [[nodiscard]] std::optional<Position> claim_for_reading(RingCursors& cursors, Owner me, ReadScan& scan) const;
  /// Whether a record could be claimed now.
  [[nodiscard]] bool has_record(const RingCursors& cursors) const noexcept;
  /// Claims a record that a dead or unwilling consumer has returned; nullopt if there is none. For callers that saw a
  /// new epoch.
  [[nodiscard]] std::optional<Position> claim_returned(Owner me) const;
  /// Whether `claim_returned` would find a record.
  [[nodiscard]] bool has_returned() const noexcept;
  /// Frees a slot in `reading`.
  void finish(Position position, Owner me) const {
    const SlotWord mine = make_slot_word(lap_of(position), RingSlotState::reading, me);
    replace_own(position, mine, next_lap(mine));
  }
  /// Returns a slot in `reading` to the other consumers; raise the epoch afterwards.
  void give_back(Position position, Owner me) const;

  /// Recovers the slots of a dead participant: skips unpublished records and returns held ones, or frees the slot if
  /// `is_in_flight` says that the in-flight table has the record. Does not raise the epoch.
  template <class IsInFlight>
  void recover(Owner dead, IsInFlight is_in_flight) const {
    for (std::uint64_t index = 0; index < capacity_; ++index) {
      SlotWord word = slots_[index].word.load();
      if (owner_of(word) != dead) continue;
      const std::uint64_t lap = word >> kLapShift;
      if (state_of(word) == RingSlotState::writing) {
        slots_[index].word.compare_exchange_strong(word, make_slot_word(lap, RingSlotState::skip));
      } else if (state_of(word) == RingSlotState::reading) {
        const auto next = is_in_flight(index, lap) ? next_lap(word) : make_slot_word(lap, RingSlotState::returned);
        slots_[index].word.compare_exchange_strong(word, next);
      }
    }
  }

  /// The slot of a position.
  [[nodiscard]] RingSlot& slot(Position position) const noexcept { return slots_[index_of(position)]; }
  /// The index of a position's slot.
  [[nodiscard]] std::uint64_t index_of(Position position) const noexcept {
    return position - lap_of(position) * capacity_;
  }
  /// The lap of a position.
  [[nodiscard]] std::uint64_t lap_of(Position position) const noexcept {
    return shift_ >= 0 ? position >> static_cast<unsigned>(shift_) : position / capacity_;
  }
  /// Number of slots.
  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }
  /// The lines before the slots.
  [[nodiscard]] RingHead& head() const noexcept { return *head_; }
  /// Records in the ring; approximate while others work.
  [[nodiscard]] std::uint64_t count() const noexcept;

 private:
  static constexpr Position kHintStep = 16;

  static int shift_for(std::uint64_t capacity) noexcept {
    return std::has_single_bit(capacity) ? std::countr_zero(capacity) : -1;
  }
  // The next place to search after `position`, whose slot was seen `ahead` laps further: all places before it have
  // been passed (rule 5).
  [[nodiscard]] Position after(Position position, std::int64_t ahead) const noexcept {
    return position + 1 + (static_cast<Position>(std::max<std::int64_t>(ahead, 1)) - 1) * capacity_;
  }
  [[nodiscard]] std::uint64_t most_steps() const noexcept;
  // Only recovery can have changed the word of the caller's slot, and only if the caller was declared dead (rule 2).
  void replace_own(Position position, SlotWord mine, SlotWord next) const {
    if (!slots_[index_of(position)].word.compare_exchange_strong(mine, next)) fail_taken_for_dead(position);
  }
  [[noreturn]] static void fail_taken_for_dead(Position position);
  [[noreturn]] void fail_lost() const;

  RingHead* head_;
  RingSlot* slots_;
  std::uint64_t capacity_;
  int shift_;
};

}  // namespace drover::ipc
