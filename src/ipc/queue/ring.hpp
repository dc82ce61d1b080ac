// ipc/queue/ring.hpp: the operations on a ring. The rules are in ring_layout.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "ipc/queue/ring_layout.hpp"

namespace drover {

/// Where one handle looks next. In private memory; its races between threads are harmless, since every value a
/// thread may find is a valid place to begin (rule 5).
struct RingCursors {
  alignas(kCacheLine) std::atomic<Position> write{0};  // apart: threads that put and threads that get share a handle
  alignas(kCacheLine) std::atomic<Position> read{0};
  std::atomic<std::uint64_t> seen_epoch{0};
};

/// What a search for a record has met besides.
struct ReadLook {
  bool has_freed = false;   ///< slots of dead producers were cleared: wake producers
  bool is_pending = false;  ///< the next record is being written: the ring is not drained
};

/// A ring in this process's address space. Owns nothing. No operation waits, makes a system call or rings a bell.
class Ring {
 public:
  /// `capacity` comes from the spec.
  Ring(RingHead& head, RingSlot* slots, std::uint64_t capacity) noexcept
      : head_(&head), slots_(slots), capacity_(capacity), shift_(shift_for(capacity)) {}

  /// Takes the first free slot for `me`; nothing if the ring is full. Throws `Errc::corrupt` if no sequence of
  /// operations can have led here: no slot is ever more than one lap behind a place to look (rule 5).
  [[nodiscard]] std::optional<Position> claim_for_writing(RingCursors& cursors, Owner me) const;
  /// Whether the next slot is free, or taken by somebody else meanwhile: worth another look.
  [[nodiscard]] bool has_room(const RingCursors& cursors) const noexcept;
  /// Whether a good part of the ring is free behind the place where `claim_for_writing` found it full. A producer
  /// that takes every slot at the moment it is freed fights with the consumer for its cache line.
  [[nodiscard]] bool has_much_room(const RingCursors& cursors) const noexcept;
  /// Makes the record of a slot in `writing` visible. Throws `Errc::internal` if the slot is not mine any more.
  void publish(Position position, Owner me) const {
    const std::uint64_t lap = lap_of(position);
    replace_own(position, make_slot_word(lap, SlotState::writing, me), make_slot_word(lap, SlotState::ready));
  }
  /// Gives a slot in `writing` up; nobody will see its record.
  void abandon(Position position, Owner me) const;
  /// Takes the oldest published record for `me`; nothing if there is none.
  [[nodiscard]] std::optional<Position> claim_for_reading(RingCursors& cursors, Owner me, ReadLook& look) const;
  /// Whether a record could be taken now, without taking it.
  [[nodiscard]] bool has_record(const RingCursors& cursors) const noexcept;
  /// Takes a record that a dead or unwilling consumer held; nothing if no slot is `returned`. For callers that saw
  /// a new epoch.
  [[nodiscard]] std::optional<Position> claim_returned(Owner me) const;
  /// Whether `claim_returned` would find something.
  [[nodiscard]] bool has_returned() const noexcept;
  /// Frees a slot in `reading`.
  void finish(Position position, Owner me) const {
    const SlotWord mine = make_slot_word(lap_of(position), SlotState::reading, me);
    replace_own(position, mine, next_lap(mine));
  }
  /// Gives a slot in `reading` to the other consumers; raise the epoch afterwards.
  void give_back(Position position, Owner me) const;

  /// Records of a dead participant: unpublished ones are skipped, held ones returned, unless `is_in_flight` says
  /// of a position that the in-flight table has it: then the slot is freed. Does not raise the epoch.
  template <class IsInFlight>
  void recover(Owner dead, IsInFlight is_in_flight) const {
    for (std::uint64_t index = 0; index < capacity_; ++index) {
      SlotWord word = slots_[index].word.load();
      if (owner_of(word) != dead) continue;
      const std::uint64_t lap = word >> kLapShift;
      if (state_of(word) == SlotState::writing) {
        slots_[index].word.compare_exchange_strong(word, make_slot_word(lap, SlotState::skip));
      } else if (state_of(word) == SlotState::reading) {
        const auto next = is_in_flight(index, lap) ? next_lap(word) : make_slot_word(lap, SlotState::returned);
        slots_[index].word.compare_exchange_strong(word, next);
      }
    }
  }

  /// The slot of a position.
  [[nodiscard]] RingSlot& slot(Position position) const noexcept { return slots_[index_of(position)]; }
  /// The slot's place in the array.
  [[nodiscard]] std::uint64_t index_of(Position position) const noexcept {
    return position - lap_of(position) * capacity_;
  }
  /// How often the ring has been round before it.
  [[nodiscard]] std::uint64_t lap_of(Position position) const noexcept {
    return shift_ >= 0 ? position >> static_cast<unsigned>(shift_) : position / capacity_;
  }
  /// How many records fit.
  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }
  /// The lines before the slots.
  [[nodiscard]] RingHead& head() const noexcept { return *head_; }
  /// Records in the ring, roughly: it changes while it is counted.
  [[nodiscard]] std::uint64_t count() const noexcept;

 private:
  static constexpr Position kHintStep = 16;

  static int shift_for(std::uint64_t capacity) noexcept {
    return std::has_single_bit(capacity) ? std::countr_zero(capacity) : -1;
  }
  // The next place to look after `position`, whose slot was seen `ahead` laps further: all places before it have
  // been passed (rule 5).
  [[nodiscard]] Position after(Position position, std::int64_t ahead) const noexcept {
    return position + 1 + (static_cast<Position>(std::max<std::int64_t>(ahead, 1)) - 1) * capacity_;
  }
  [[nodiscard]] std::uint64_t most_steps() const noexcept;
  // Only recovery could have changed the word of a slot that is mine, and it does so only for the dead (rule 2).
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

}  // namespace drover
