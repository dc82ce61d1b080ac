#include "ipc/queue/ring.hpp"

#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::ipc {

std::optional<Position> Ring::claim_for_writing(RingCursors& cursors, Owner me) const {
  // relaxed: any value found is a valid place to start
  Position tail =
      std::max(cursors.write.load(std::memory_order_relaxed), head_->tail_hint.load(std::memory_order_relaxed));
  for (std::uint64_t steps = 0; steps < most_steps(); ++steps) {
    const std::uint64_t lap = lap_of(tail);
    RingSlot& slot = slots_[index_of(tail)];
    SlotWord word = slot.word.load();
    const SlotWord free = make_slot_word(lap, RingSlotState::free);
    if (word == free && slot.word.compare_exchange_strong(word, make_slot_word(lap, RingSlotState::writing, me))) {
      cursors.write.store(tail + 1, std::memory_order_relaxed);
      if (tail % kHintStep == 0) head_->tail_hint.store(tail + 1, std::memory_order_relaxed);
      return tail;
    }
    const std::int64_t ahead = laps_ahead(word, lap);
    if (ahead < -1) break;
    if (ahead < 0) {  // still holds the record of the previous lap
      cursors.write.store(tail, std::memory_order_relaxed);
      return std::nullopt;
    }
    tail = after(tail, ahead);
  }
  fail_lost();
}

bool Ring::has_room(const RingCursors& cursors) const noexcept {
  const Position next = cursors.write.load(std::memory_order_relaxed);
  return laps_ahead(slot(next).word.load(), lap_of(next)) >= 0;
}

bool Ring::has_much_room(const RingCursors& cursors) const noexcept {
  const Position far = cursors.write.load(std::memory_order_relaxed) + capacity_ / 8;
  return laps_ahead(slot(far).word.load(std::memory_order_relaxed), lap_of(far)) >= 0;  // relaxed: a hint
}

std::optional<Position> Ring::claim_for_reading(RingCursors& cursors, Owner me, ReadScan& scan) const {
  Position head =
      std::max(cursors.read.load(std::memory_order_relaxed), head_->head_hint.load(std::memory_order_relaxed));
  for (std::uint64_t steps = 0; steps < most_steps(); ++steps) {
    const std::uint64_t lap = lap_of(head);
    RingSlot& slot = slots_[index_of(head)];
    SlotWord word = slot.word.load();
    const std::int64_t ahead = laps_ahead(word, lap);
    const RingSlotState state = state_of(word);
    if (ahead < -1) break;
    if (ahead < 0 || (ahead == 0 && (state == RingSlotState::free || state == RingSlotState::writing))) {
      cursors.read.store(head, std::memory_order_relaxed);
      scan.is_pending = ahead == 0 && state == RingSlotState::writing;
      return std::nullopt;
    }
    if (ahead == 0 && state == RingSlotState::ready) {
      if (!slot.word.compare_exchange_strong(word, make_slot_word(lap, RingSlotState::reading, me))) continue;
      cursors.read.store(head + 1, std::memory_order_relaxed);
      if (head % kHintStep == 0) head_->head_hint.store(head + 1, std::memory_order_relaxed);
      return head;
    }
    if (ahead == 0 && state == RingSlotState::skip) {
      scan.has_freed |= slot.word.compare_exchange_strong(word, make_slot_word(lap + 1, RingSlotState::free));
    }
    head = after(head, ahead);
  }
  fail_lost();
}

void Ring::abandon(Position position, Owner me) const {
  const std::uint64_t lap = lap_of(position);
  replace_own(position, make_slot_word(lap, RingSlotState::writing, me), make_slot_word(lap, RingSlotState::skip));
}

bool Ring::has_record(const RingCursors& cursors) const noexcept {
  Position head =
      std::max(cursors.read.load(std::memory_order_relaxed), head_->head_hint.load(std::memory_order_relaxed));
  for (std::uint64_t steps = 0; steps < most_steps(); ++steps) {
    const std::uint64_t lap = lap_of(head);
    const SlotWord word = slots_[index_of(head)].word.load();
    const std::int64_t ahead = laps_ahead(word, lap);
    const RingSlotState state = state_of(word);
    if (ahead < -1) break;
    if (ahead < 0 || (ahead == 0 && (state == RingSlotState::free || state == RingSlotState::writing))) return false;
    if (ahead == 0 && state == RingSlotState::ready) return true;
    head = after(head, ahead);
  }
  return true;  // the ring is corrupt: the attempt to take a record throws
}

std::optional<Position> Ring::claim_returned(Owner me) const {
  for (std::uint64_t index = 0; index < capacity_; ++index) {
    SlotWord word = slots_[index].word.load();
    if (state_of(word) != RingSlotState::returned) continue;
    const std::uint64_t lap = word >> kLapShift;
    if (slots_[index].word.compare_exchange_strong(word, make_slot_word(lap, RingSlotState::reading, me))) {
      return lap * capacity_ + index;
    }
  }
  return std::nullopt;
}

bool Ring::has_returned() const noexcept {
  return std::any_of(slots_, slots_ + capacity_,
                     [](const RingSlot& slot) { return state_of(slot.word.load()) == RingSlotState::returned; });
}

void Ring::give_back(Position position, Owner me) const {
  const std::uint64_t lap = lap_of(position);
  replace_own(position, make_slot_word(lap, RingSlotState::reading, me),
              make_slot_word(lap, RingSlotState::returned));
}

std::uint64_t Ring::count() const noexcept {
  std::uint64_t records = 0;
  for (std::uint64_t index = 0; index < capacity_; ++index) {
    const RingSlotState state = state_of(slots_[index].word.load(std::memory_order_relaxed));
    if (state == RingSlotState::ready || state == RingSlotState::returned) ++records;
  }
  return records;
}

// Every step either passes a slot for good or loses a race to a participant that got further.
std::uint64_t Ring::most_steps() const noexcept { return (capacity_ + 64) * 4096; }

void Ring::fail_taken_for_dead(Position position) {
  throw Error(Errc::internal,
              fmt::format("process {} was declared dead while it used position {} of a ring", ::getpid(), position),
              "report this with the session's log; the record may be delivered again");
}

void Ring::fail_lost() const {
  throw Error(Errc::corrupt,
              fmt::format("the ring of {} slots at {} is corrupt", capacity_, static_cast<void*>(head_)),
              "end the session and look for a process that writes outside its memory");
}

}  // namespace drover::ipc
