// What consumers do with a record they have taken: the upper half of QueueCore's work for them.
#include <bit>
#include <cstring>
#include <utility>

#include "drover/base/error.hpp"
#include "ipc/ledger/slab_book.hpp"
#include "ipc/queue/queue_core.hpp"

namespace drover {

using detail::HeldMemory;

// Takes over the leases of a record, then does the work on the rest. If that fails for want of something, the record
// goes to the others, with all its leases; if nobody could use it, it goes for good, and they with it.
template <class Work>
void QueueCore::use_taken(const Taken& taken, Owner me, std::vector<Lease>& leases, Work work) {
  try {
    if (taken.head.leases() > 0) receive_leases(taken, leases);
    work();
  } catch (const Error& error) {
    const bool is_useless = error.code() == Errc::corrupt || error.code() == Errc::not_found;
    is_useless ? end_record(taken, me, leases) : hand_back_record(taken, me, leases);
    throw;
  } catch (...) {
    hand_back_record(taken, me, leases);
    throw;
  }
}

void QueueCore::receive_leases(const Taken& taken, std::vector<Lease>& leases) const {
  leases.reserve(taken.head.leases());
  for (const SentLeaseWords& sent : std::span(leases_of(taken), taken.head.leases())) {
    leases.push_back(SlabBook::receive(object_.shared_membership(), sent.load()));
  }
}

void QueueCore::end_record(const Taken& taken, Owner me, std::vector<Lease>& leases) {
  for (const SentLeaseWords& sent : std::span(leases_of(taken), taken.head.leases()).subspan(leases.size())) {
    SlabBook::end_sent(object_.shared_membership(), sent.load());
  }
  leases.clear();
  finish(taken, me);
}

void QueueCore::hand_back_record(const Taken& taken, Owner me, std::vector<Lease>& leases) {
  for (Lease& lease : leases) SlabBook::hand_back(lease);
  leases.clear();
  put_back(taken, me);
}

GetResult QueueCore::get(Message& into, Deadline deadline) {
  const Owner me = object_.self();
  into.reset();
  const Taken taken = take(me, deadline);
  if (!taken.is_taken) return taken.end;
  const std::size_t size = taken.head.bytes();
  use_taken(taken, me, into.leases_, [&] {
    switch (taken.head.storage()) {
      case Storage::small: record_of(taken).load_small(into.small_.data(), size); break;
      case Storage::inlined: into.inlined_.assign(inlined_of(taken), inlined_of(taken) + size); break;
      default: into.held_ = adopt(taken, me); break;
    }
  });
  if (size > kFirstLineBytes) take_lines_over(taken);
  into.is_inlined_ = taken.head.storage() == Storage::inlined;
  into.size_ = size;
  into.key_ = key_of(taken);
  into.is_redelivered_ = taken.is_redelivered;
  finish(taken, me);
  return GetResult::got;
}

GetResult QueueCore::receive(Delivery& into, Deadline deadline) {
  const Owner me = object_.self();
  if (into.is_open()) into.give_back();
  Taken taken = take(me, deadline);
  if (!taken.is_taken) return taken.end;
  const Storage storage = taken.head.storage();
  const bool is_held = storage == Storage::block || storage == Storage::overflow;
  use_taken(taken, me, into.leases_, [&] {
    if (is_held) into.held_ = adopt(taken, me);
  });
  into.key_ = key_of(taken);
  if (!taken.is_flight) keep_in_flight(taken, me);
  const auto* const small = reinterpret_cast<const std::byte*>(record_of(taken).small_words.data());
  into.data_ = is_held ? into.held_.data_ : storage == Storage::small ? small : inlined_of(taken);
  into.size_ = taken.head.bytes();
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
  delivery.leases_.clear();
}

// The memory and the leases stay with the record. An object of its own is closed after the record is back, which
// keeps it.
void QueueCore::give_back(Delivery& delivery) {
  const auto keep_alive = std::exchange(delivery.core_, nullptr);
  const Owner me = object_.self();
  for (Lease& lease : delivery.leases_) SlabBook::hand_back(lease);
  delivery.leases_.clear();
  HeldMemory& held = delivery.held_;
  const auto held_core = std::exchange(held.core_, nullptr);
  Taken taken;
  taken.place = delivery.place_;
  taken.is_flight = delivery.is_flight_;
  put_back(taken, me);
  if (held_core != nullptr && held.is_overflow_) object_.membership().close(held.overflow_);
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
    flight.record.store_head(taken.head);
    if (taken.head.storage() == Storage::inlined) {
      std::memcpy(view_.inlined_of_flight(index), inlined_of(taken), taken.head.bytes());
    }
    for (std::size_t lease = 0; lease < taken.head.leases(); ++lease) {
      view_.leases_of_flight(index)[lease].copy_from(leases_of(taken)[lease]);
    }
    flight.word.store(make_slot_word(lap, SlotState::reading, me));
    take_lines_over(taken);
    finish(taken, me);
    taken.place = index;
    taken.is_flight = true;
    return;
  }
}

HeldMemory QueueCore::adopt(const Taken& taken, Owner me) {
  const Record& record = record_of(taken);
  HeldMemory held;
  held.size_ = taken.head.bytes();
  if (taken.head.storage() == Storage::block) {
    const BlockRef block = block_of(record);
    view_.pool.adopt(block, me);
    held.block_ = std::bit_cast<std::uint64_t>(block);
    held.core_ = shared_from_this();
    held.data_ = view_.pool_data + view_.pool.offset_of(block);
    if (taken.head.bytes() > view_.pool.capacity_of(block)) fail_corrupt(taken.head);
    held.is_copied_ = taken.head.is_copied();
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
  if (taken.head.bytes() > open.spec.parameters[0]) fail_corrupt(taken.head);
  return held;
}

}  // namespace drover
