// The consumers' half of QueueCore.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/queue_core.hpp"

namespace drover {
namespace {

using detail::HeldMemory;

[[noreturn]] void fail_corrupt(RecordHead record, const ObjectHandle& queue) {
  throw Error(Errc::corrupt,
              fmt::format("a record of {} bytes in storage {} in {} makes no sense", record.bytes(),
                          static_cast<int>(record.storage()), queue.to_string()),
              "a process of the session has written where it must not; end the session and look for that process");
}

bool fits(RecordHead record) noexcept {
  switch (record.storage()) {
    case Storage::small: return record.bytes() <= kSmallBytes;
    case Storage::inlined: return record.bytes() <= kInlineBytes;
    case Storage::block:
    case Storage::overflow: return record.bytes() > 0;
  }
  return false;
}

}  // namespace

GetResult QueueCore::get(Message& into, Deadline deadline) {
  const Owner me = object_.self();
  into.held_.reset();
  const Taken taken = take(me, deadline);
  if (!taken.is_taken) return taken.end;
  const Record& record = record_of(taken);
  const RecordHead head = record.load_head();
  into.key_ = key_of(taken);
  into.is_redelivered_ = taken.is_redelivered;
  into.size_ = head.bytes();
  switch (head.storage()) {
    case Storage::small: record.load_small(into.small_.data(), head.bytes()); break;
    case Storage::inlined: into.inlined_.assign(inlined_of(taken), inlined_of(taken) + head.bytes()); break;
    default: into.held_ = adopt(record, me); break;
  }
  finish(taken, me);
  return GetResult::got;
}

GetResult QueueCore::receive(Delivery& into, Deadline deadline) {
  const Owner me = object_.self();
  if (into.is_open()) into.give_back();
  Taken taken = take(me, deadline);
  if (!taken.is_taken) return taken.end;
  const RecordHead head = record_of(taken).load_head();
  const Storage storage = head.storage();
  const bool is_held = storage == Storage::block || storage == Storage::overflow;
  if (is_held) into.held_ = adopt(record_of(taken), me);
  into.key_ = key_of(taken);
  if (!taken.is_flight) keep_in_flight(taken, me);
  const auto* const small = reinterpret_cast<const std::byte*>(record_of(taken).small_words.data());
  into.data_ = is_held ? into.held_.data_ : storage == Storage::small ? small : inlined_of(taken);
  into.size_ = head.bytes();
  into.place_ = taken.place;
  into.is_flight_ = taken.is_flight;
  into.is_redelivered_ = taken.is_redelivered;
  into.core_ = shared_from_this();
  return GetResult::got;
}

// The record goes first: a block without a record is freed by recovery, a record without its block would be an error.
void QueueCore::done(Delivery& delivery) {
  const auto keep_alive = std::exchange(delivery.core_, nullptr);
  Taken taken;
  taken.place = delivery.place_;
  taken.is_flight = delivery.is_flight_;
  finish(taken, object_.self());
  delivery.held_.reset();
}

void QueueCore::give_back(Delivery& delivery) {
  const auto keep_alive = std::exchange(delivery.core_, nullptr);
  HeldMemory& held = delivery.held_;
  if (held.core_ != nullptr && held.is_overflow_) object_.membership().forget(held.overflow_);
  const auto held_core = std::exchange(held.core_, nullptr);  // the memory stays with the record
  const Owner me = object_.self();
  if (delivery.is_flight_) {
    auto& word = view_.flights[delivery.place_].word;
    word.store(make_slot_word(word.load() >> kLapShift, SlotState::returned));
  } else {
    view_.ring.give_back(delivery.place_, me);
  }
  ++head().returned_epoch;
  ring_one(head().record_ready);
}

QueueCore::Taken QueueCore::take(Owner me, Deadline deadline) {
  Taken taken =
      wait_on(head().record_ready, object_.membership(), deadline, get_patience_, [&] { return try_take(me); });
  if (!taken.is_taken) {
    if (is_watched_.load(std::memory_order_relaxed)) watch_again();  // relaxed: set by this process before it polled
    return taken;
  }
  // relaxed: a hint for this process alone
  if (!has_got_.load(std::memory_order_relaxed)) has_got_.store(true, std::memory_order_relaxed);
  const RecordHead record = record_of(taken).load_head();
  if (fits(record)) return taken;
  finish(taken, me);
  fail_corrupt(record, object_.handle());
}

QueueCore::Taken QueueCore::try_take(Owner me) {
  Taken taken;
  ReadLook look;
  if (try_take_now(me, taken, look)) return taken;
  const bool is_at_end = is_closed();
  const bool is_lost = !is_at_end && is_alone(has_put_);
  if (!is_at_end && !is_lost) return taken;
  if (try_take_now(me, taken, look)) return taken;  // it came before the end did
  if (!look.is_pending) taken.end = is_at_end ? GetResult::closed : GetResult::peer_lost;
  return taken;
}

bool QueueCore::try_take_now(Owner me, Taken& taken, ReadLook& look) {
  // relaxed: the epoch was read before the search that found nothing
  if (head().returned_epoch.load() != cursors_.seen_epoch.load(std::memory_order_relaxed) &&
      try_take_returned(me, taken)) {
    return true;
  }
  const auto position = view_.ring.claim_for_reading(cursors_, me, look);
  if (look.has_freed) ring_all(head().slot_free);
  if (!position) return false;
  taken.place = *position;
  taken.is_taken = true;
  return true;
}

bool QueueCore::try_take_returned(Owner me, Taken& taken) {
  const std::uint64_t epoch = head().returned_epoch.load();
  taken.is_redelivered = true;
  for (std::uint64_t index = 0; index < view_.flight_count && !taken.is_taken; ++index) {
    auto& word = view_.flights[index].word;
    SlotWord seen = word.load();
    if (state_of(seen) != SlotState::returned) continue;
    taken.place = index;
    taken.is_flight = true;
    taken.is_taken = word.compare_exchange_strong(seen, make_slot_word(seen >> kLapShift, SlotState::reading, me));
  }
  if (taken.is_taken) return true;
  taken.is_flight = false;
  if (const auto position = view_.ring.claim_returned(me)) {
    taken.place = *position;
    taken.is_taken = true;
    return true;
  }
  taken.is_redelivered = false;
  cursors_.seen_epoch.store(epoch, std::memory_order_relaxed);  // relaxed: for this process alone
  return false;
}

void QueueCore::finish(const Taken& taken, Owner me) {
  if (taken.is_flight) {
    auto& word = view_.flights[taken.place].word;
    word.store(next_lap(word.load()));
    return;
  }
  view_.ring.finish(taken.place, me);
  ring_one(head().slot_free);
}

// Copies the record to the in-flight table and frees its slot, so that producers do not wait for whoever works on it.
// Where the table is full it stays in its slot, which is right too.
void QueueCore::keep_in_flight(Taken& taken, Owner me) {
  const Record& record = record_of(taken);
  for (std::uint64_t tries = 0; tries < view_.flight_count; ++tries) {
    const std::uint64_t index = (taken.place + tries) % view_.flight_count;
    Flight& flight = view_.flights[index];
    SlotWord seen = flight.word.load();
    if (state_of(seen) != SlotState::free) continue;
    const std::uint64_t lap = seen >> kLapShift;
    if (!flight.word.compare_exchange_strong(seen, make_slot_word(lap, SlotState::writing, me))) continue;
    flight.position.store(taken.place, std::memory_order_relaxed);  // relaxed: the word's change follows
    flight.record.copy_from(record);
    if (const RecordHead head = record.load_head(); head.storage() == Storage::inlined) {
      std::memcpy(view_.inlined_of_flight(index), inlined_of(taken), head.bytes());
    }
    flight.word.store(make_slot_word(lap, SlotState::reading, me));
    finish(taken, me);
    taken.place = index;
    taken.is_flight = true;
    return;
  }
}

HeldMemory QueueCore::adopt(const Record& record, Owner me) {
  const RecordHead head = record.load_head();
  HeldMemory held;
  held.size_ = head.bytes();
  if (head.storage() == Storage::block) {
    const BlockRef block = block_of(record);
    view_.pool.adopt(block, me);
    held.block_ = std::bit_cast<std::uint64_t>(block);
    held.core_ = shared_from_this();
    held.data_ = view_.pool_data + view_.pool.offset_of(block);
    if (head.bytes() > view_.pool.capacity_of(block)) fail_corrupt(head, object_.handle());
    return held;
  }
  const OverflowRef overflow = overflow_of(record);
  held.overflow_ = {.kind = ObjectKind::overflow,
                    .slab = static_cast<std::uint32_t>(overflow.slab),
                    .offset = overflow.offset,
                    .generation = overflow.generation};
  const OpenObject open = object_.membership().open(held.overflow_);
  held.is_overflow_ = true;
  held.core_ = shared_from_this();
  held.data_ = layout_of(open.data);
  if (head.bytes() > open.spec.parameters[0]) fail_corrupt(head, object_.handle());
  return held;
}

Record& QueueCore::record_of(const Taken& taken) const noexcept {
  return taken.is_flight ? view_.flights[taken.place].record : view_.ring.slot(taken.place).record;
}

std::byte* QueueCore::inlined_of(const Taken& taken) const noexcept {
  return taken.is_flight ? view_.inlined_of_flight(taken.place)
                         : view_.inlined_of_slot(view_.ring.index_of(taken.place));
}

MessageKey QueueCore::key_of(const Taken& taken) const noexcept {
  // relaxed: written before the word that was just read
  return taken.is_flight ? view_.flights[taken.place].position.load(std::memory_order_relaxed) : taken.place;
}

}  // namespace drover
