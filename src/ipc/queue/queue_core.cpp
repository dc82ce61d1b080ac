#include "ipc/queue/queue_core.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "ipc/queue/cache_lines.hpp"

namespace drover::ipc {
namespace {

constexpr std::size_t kMostTakenOver = 4 * kMiB;  // larger messages have left the core's caches anyway
constexpr Position kFetchedAhead = 4;             // slots

bool fits(RecordHead record) noexcept {
  if (record.has_many_leases()) return record.storage() == Storage::block;
  if (record.leases() > kMostLeasesInSlot) return false;
  switch (record.storage()) {
    case Storage::small: return record.bytes() <= kSmallBytes && !record.is_copied();
    case Storage::inlined: return record.bytes() <= kInlineBytes && !record.is_copied();
    case Storage::block:
    case Storage::overflow: return record.bytes() > 0;
  }
  return false;
}

[[noreturn]] void fail_corrupt(RecordHead record, const ObjectHandle& queue) {
  throw Error(Errc::corrupt,
              fmt::format("a record of {} bytes in storage {} in {} is corrupt", record.bytes(),
                          static_cast<int>(record.storage()), queue.to_string()),
              "end the session and look for a process that writes outside its memory");
}

// Lines beyond that of the slot's word. The processor prefetches by itself where messages lie close together.
void fetch_lines_ahead(const QueueView& view, Position position, std::size_t bytes) noexcept {
  if (bytes <= kFirstLineBytes || bytes > kInlineBytes / 2) return;
  if (bytes <= kSmallBytes) {
    fetch_for_writing(reinterpret_cast<const std::byte*>(&view.ring.slot(position)) + kCacheLine, kCacheLine);
  } else {
    fetch_for_writing(view.inlined_of_slot(view.ring.index_of(position)), bytes);
  }
}

// Called after they were read: the producer will write them again, one lap later.
void take_lines_over(const QueueView& view, const TakenRecord& taken) noexcept {
  if (taken.place.is_flight) return;
  const std::size_t bytes = taken.head.bytes();
  if (taken.head.storage() == Storage::inlined) {
    take_over(view.inlined_of(taken.place), bytes);
  } else if (taken.head.storage() == Storage::small && bytes > kFirstLineBytes) {
    view.ring.slot(taken.place.at).taken_over.store(1, std::memory_order_relaxed);  // relaxed: nobody reads it
  }
}

bool has_overflow(const QueueView& view) noexcept {
  bool found = false;
  for_each_record(view,
                  [&](const Record& record) { found = found || record.load_head().storage() == Storage::overflow; });
  return found;
}

}  // namespace

using detail::HeldMemory;

QueueCore::QueueCore(SharedObject object)
    : object_(std::move(object)),
      view_(object_.layout(), queue_geometry(object_.spec())),
      peers_(object_),
      pages_(view_.ring) {}

void QueueCore::close() {
  static_cast<void>(object_.self());
  view_.head().is_closed.exchange(1);
  wake_always(view_.head().record_ready);
  wake_always(view_.head().slot_free);
  wake_always(view_.head().bytes_free);
}

bool QueueCore::is_readable() noexcept {
  return has_returned() || view_.ring.has_record(cursors_) || view_.is_closed() || peers_.are_putters_gone();
}

// The watch may refer to this core, which owns it; it keeps the membership alive, whose mapping holds the bell.
int QueueCore::fd() {
  static_cast<void>(object_.self());
  const MutexLock lock(watch_mutex_);
  if (watch_ == nullptr) {
    watch_ = std::make_unique<Bridge::Watch>(BridgeTarget{.bell = &view_.head().record_ready,
                                                          .is_ready = [this] { return is_readable(); },
                                                          .membership = object_.shared_membership()});
    is_watched_ = true;
  }
  return watch_->fd();
}

// Producers.

PutResult QueueCore::put(std::span<const std::byte> message, std::span<Lease> leases, Deadline deadline) {
  const Owner me = object_.self();
  const SendableLeases sendable(leases, object_.membership());
  if (message.size() > kInlineBytes || sendable.are_many()) {
    PutResult result = PutResult::timed_out;
    HeldMemory held = allocate_for(message.size(), sendable, me, deadline, result);
    if (held.core_ == nullptr) return result;
    if (!message.empty()) std::memcpy(held.data_, message.data(), message.size());
    held.is_copied_ = true;
    return put_held(held, sendable, me, deadline);
  }
  const ClaimedSlot claimed = claim(me, deadline);
  if (claimed.result != PutResult::put) return claimed.result;
  fetch_lines_ahead(view_, claimed.position + kFetchedAhead, message.size());
  Record& record = view_.ring.slot(claimed.position).record;
  const std::uint64_t index = view_.ring.index_of(claimed.position);
  const bool is_small = message.size() <= kSmallBytes;
  const RecordHead plain = RecordHead::of(message.size(), is_small ? Storage::small : Storage::inlined);
  record.store_head(plain.with_leases(sendable.write(view_.leases_of_slot(index))));
  if (is_small) {
    record.store_small(message.data(), message.size());
  } else {
    std::memcpy(view_.inlined_of_slot(index), message.data(), message.size());
  }
  publish_record(claimed.position, me);
  sendable.give_away();
  return PutResult::put;
}

Loan QueueCore::loan(std::size_t bytes, Deadline deadline) {
  require(bytes > 0, "a loan must have at least one byte");
  Loan loan;
  PutResult result = PutResult::timed_out;
  loan.held_ = allocate(bytes, object_.self(), deadline, result);
  loan.result_ = loan.is_open() ? PutResult::put : result;
  return loan;
}

PutResult QueueCore::publish(Loan& loan, Deadline deadline) {
  require(loan.is_open() && loan.held_.core_->object_.handle() == object_.handle(),
          "publish() needs an open loan of the same queue", "pass a loan that loan() of this queue returned");
  return put_held(loan.held_, SendableLeases({}, object_.membership()), object_.self(), deadline);
}

// The memory belongs to the record from its publication on: recovery leaves what a readable record refers to.
PutResult QueueCore::put_held(HeldMemory& held, const SendableLeases& leases, Owner me, Deadline deadline) {
  const ClaimedSlot claimed = claim(me, deadline);
  if (claimed.result != PutResult::put) return claimed.result;
  Record& record = view_.ring.slot(claimed.position).record;
  const auto plain =
      RecordHead::of(held.size_, held.is_overflow_ ? Storage::overflow : Storage::block, held.is_copied_);
  SentLeaseWords* const words = leases.are_many() ? LeaseTable::make(held.data_, held.size_, leases.count())
                                                  : view_.leases_of_slot(view_.ring.index_of(claimed.position));
  record.store_head(plain.with_leases(leases.write(words)));
  if (held.is_overflow_) {
    const ObjectHandle& object = held.overflow_;
    const OverflowRef overflow{.generation = object.generation, .offset = object.offset, .slab = object.slab};
    record.store_small(&overflow, sizeof(overflow));
  } else {
    record.store_small(&held.block_, sizeof(held.block_));
  }
  publish_record(claimed.position, me);
  leases.give_away();
  if (held.is_overflow_) object_.membership().close(held.overflow_);  // the record keeps it
  held.data_ = nullptr;
  held.size_ = 0;
  const auto keep_alive = std::exchange(held.core_, nullptr);
  return PutResult::put;
}

// Slots are freed out of order, so a single wake-up may reach a producer whose next slot is still taken. Whoever
// gets a slot therefore wakes the next sleeper if there is another.
ClaimedSlot QueueCore::claim(Owner me, Deadline deadline) {
  ClaimedSlot claimed = try_claim(me);
  if (!claimed && !deadline.has_passed()) {
    for (int left = put_patience_.pauses(); left > 0 && !view_.ring.has_much_room(cursors_); --left) relax();
    claimed = wait_on([this] { return peers_.is_pipe() ? "pipe.send" : "queue.put"; }, view_.head().slot_free,
                      object_.membership(), deadline, put_patience_, [&] { return try_claim(me); });
  }
  if (claimed.result == PutResult::put) {
    pages_.note_use(claimed.position);
    peers_.note_put();
    Bell& slot_free = view_.head().slot_free;
    if (may_have_sleepers(slot_free) && view_.ring.has_room(cursors_)) wake_in_turn(slot_free);
  }
  return claimed;
}

// If the queue is closed between the check and the claim, the record has no place: a consumer may have found the
// queue drained. In a session that is over nobody recovers the record, or can open the queue to take it.
ClaimedSlot QueueCore::try_claim(Owner me) {
  if (object_.membership().is_over()) [[unlikely]]
    object_.membership().check();
  if (view_.is_closed()) return {.position = 0, .result = PutResult::closed};
  auto position = view_.ring.claim_for_writing(cursors_, me);
  if (!position && peers_.are_getters_gone()) {
    position = view_.ring.claim_for_writing(cursors_, me);  // the last one may have made room before it went
    if (!position) return {.position = 0, .result = PutResult::peer_lost};
  }
  if (!position) return {};
  if (!view_.is_closed()) return {.position = *position, .result = PutResult::put};
  view_.ring.abandon(*position, me);
  wake_always(view_.head().record_ready);
  return {.position = 0, .result = PutResult::closed};
}

void QueueCore::publish_record(Position position, Owner me) {
  view_.ring.publish(position, me);
  // In a closed queue this may be the last record, and others wait for it to learn that the queue is drained.
  view_.is_closed() ? wake_always(view_.head().record_ready) : wake_in_turn(view_.head().record_ready);
}

// Recovery looks for leases in blocks only, so a message with many must fit into one.
HeldMemory QueueCore::allocate_for(std::size_t bytes, const SendableLeases& leases, Owner me, Deadline deadline,
                                   PutResult& result) {
  if (!leases.are_many()) return allocate(bytes, me, deadline, result);
  const std::uint64_t whole = LeaseTable::end_behind(bytes, leases.count());
  if (view_.pool.is_too_large(whole)) {
    throw Error(Errc::limit_reached,
                fmt::format("cannot put a message of {} with {} leases: with more than {} leases, all of it must fit "
                            "into the memory of the queue",
                            format_bytes(bytes), leases.count(), kMostLeasesInSlot),
                "make the queue with more QueueOptions::bytes, or put several messages");
  }
  HeldMemory held = allocate(whole, me, deadline, result);
  held.size_ = bytes;
  return held;
}

HeldMemory QueueCore::allocate(std::size_t bytes, Owner me, Deadline deadline, PutResult& result) {
  return wait_on([this] { return peers_.is_pipe() ? "pipe.send" : "queue.put"; }, view_.head().bytes_free,
                 object_.membership(), deadline, bytes_patience_,
                 [&] {
                   if (view_.is_closed()) {
                     result = PutResult::closed;
                     return std::optional(HeldMemory{});
                   }
                   HeldMemory found = try_allocate(bytes, me, deadline);
                   if (found.core_ == nullptr && peers_.are_getters_gone()) {
                     found = try_allocate(bytes, me, deadline);
                     result = PutResult::peer_lost;
                     return std::optional(std::move(found));
                   }
                   return found.core_ != nullptr ? std::optional(std::move(found)) : std::nullopt;
                 })
      .value_or(HeldMemory{});
}

// A message larger than all the queue's memory has an object of its own. None is made while another waits in the
// queue, so that the bound on bytes is exceeded only by what several participants put, or hold, at the same moment.
HeldMemory QueueCore::try_allocate(std::size_t bytes, Owner me, Deadline deadline) {
  HeldMemory held;
  if (view_.pool.is_too_large(bytes)) {
    if (has_overflow(view_)) return held;
    const ObjectSpec spec{.kind = ObjectKind::overflow, .parameters = {bytes, object_.handle().generation}};
    const OpenObject made = object_.membership().create(spec);
    held.data_ = layout_of(made.data);
    held.overflow_ = made.handle;
    held.is_overflow_ = true;
  } else {
    const auto block = view_.pool.allocate(bytes, me, object_.membership(), deadline);
    if (!block) return held;
    held.data_ = view_.pool_data + view_.pool.offset_of(*block);
    held.block_ = std::bit_cast<std::uint64_t>(*block);
  }
  held.core_ = shared_from_this();
  held.size_ = bytes;
  return held;
}

// Consumers.

GetResult QueueCore::get(Message& into, Deadline deadline) {
  const Owner me = object_.self();
  into.reset();
  const TakenRecord taken = take(me, deadline);
  if (!taken.is_taken) return taken.end;
  const std::size_t size = taken.head.bytes();
  use_taken(taken, me, into.leases_, [&] {
    if (taken.head.storage() == Storage::small) {
      view_.record_of(taken.place).load_small(into.small_.data(), size);
    } else if (taken.head.storage() == Storage::inlined) {
      const std::byte* const inlined = view_.inlined_of(taken.place);
      into.inlined_.assign(inlined, inlined + size);
    } else {
      into.held_ = adopt(taken, me);
    }
  });
  if (size > kFirstLineBytes) take_lines_over(view_, taken);
  into.is_inlined_ = taken.head.storage() == Storage::inlined;
  into.size_ = size;
  into.key_ = view_.position_of(taken.place);
  into.is_redelivered_ = taken.is_redelivered;
  finish(taken.place, me);
  return GetResult::got;
}

// The record is copied to the in-flight table and its slot freed, so that producers need not wait for the consumer's
// work. If the table is full it stays in its slot, which is as safe.
GetResult QueueCore::receive(Delivery& into, Deadline deadline) {
  const Owner me = object_.self();
  if (into.is_open()) into.give_back();
  TakenRecord taken = take(me, deadline);
  if (!taken.is_taken) return taken.end;
  const Storage storage = taken.head.storage();
  const bool is_held = storage == Storage::block || storage == Storage::overflow;
  use_taken(taken, me, into.leases_, [&] {
    if (is_held) into.held_ = adopt(taken, me);
  });
  into.key_ = view_.position_of(taken.place);
  if (!taken.place.is_flight) {
    if (const auto flight = view_.copy_to_flight(taken.place.at, taken.head, me)) {
      take_lines_over(view_, taken);
      finish(taken.place, me);
      taken.place = *flight;
    }
  }
  const auto* const small = reinterpret_cast<const std::byte*>(view_.record_of(taken.place).small_words.data());
  into.data_ = is_held ? into.held_.data_ : storage == Storage::small ? small : view_.inlined_of(taken.place);
  into.size_ = taken.head.bytes();
  into.place_ = taken.place.at;
  into.is_flight_ = taken.place.is_flight;
  into.is_redelivered_ = taken.is_redelivered;
  into.core_ = shared_from_this();
  return GetResult::got;
}

// The record goes first: recovery frees a block without a record, but a record without its block would be an error.
void QueueCore::done(Delivery& delivery) {
  const auto keep_alive = std::exchange(delivery.core_, nullptr);
  finish({.at = delivery.place_, .is_flight = delivery.is_flight_}, object_.self());
  delivery.held_.reset();
  delivery.leases_.clear();
}

// The memory and the leases stay with the record. An overflow object is closed after the record is back, which keeps
// it.
void QueueCore::give_back(Delivery& delivery) {
  const auto keep_alive = std::exchange(delivery.core_, nullptr);
  const Owner me = object_.self();
  hand_back_leases(delivery.leases_);
  HeldMemory& held = delivery.held_;
  const auto held_core = std::exchange(held.core_, nullptr);
  put_back({.at = delivery.place_, .is_flight = delivery.is_flight_}, me);
  if (held_core != nullptr && held.is_overflow_) object_.membership().close(held.overflow_);
}

// Records become ready out of order, so a single wake-up may reach a consumer whose next record is not ready yet.
// Whoever gets one therefore wakes the next sleeper if there is another.
TakenRecord QueueCore::take(Owner me, Deadline deadline) {
  Bell& record_ready = view_.head().record_ready;
  TakenRecord taken = wait_on([this] { return peers_.is_pipe() ? "pipe.receive" : "queue.get"; }, record_ready,
                              object_.membership(), deadline, get_patience_, [&] { return try_take(me); });
  if (!taken.is_taken) {
    if (is_watched_.load(std::memory_order_relaxed)) {  // relaxed: set by this process before it polled
      const MutexLock lock(watch_mutex_);
      watch_->rearm();
    }
    return taken;
  }
  if (!taken.place.is_flight) pages_.note_use(taken.place.at);
  peers_.note_get();
  if (may_have_sleepers(record_ready) && (view_.ring.has_record(cursors_) || has_returned())) {
    wake_in_turn(record_ready);
  }
  taken.head = view_.record_of(taken.place).load_head();
  if (fits(taken.head)) return taken;
  finish(taken.place, me);
  fail_corrupt(taken.head, object_.handle());
}

TakenRecord QueueCore::try_take(Owner me) {
  TakenRecord taken;
  ReadScan scan;
  if (try_take_now(me, taken, scan)) return taken;
  const bool is_at_end = view_.is_closed();
  const bool is_lost = !is_at_end && peers_.are_putters_gone();
  if (!is_at_end && !is_lost) return taken;
  if (try_take_now(me, taken, scan)) return taken;  // it came before the end did
  if (!scan.is_pending) taken.end = is_at_end ? GetResult::closed : GetResult::peer_lost;
  return taken;
}

bool QueueCore::try_take_now(Owner me, TakenRecord& taken, ReadScan& scan) {
  // relaxed: the epoch was read before the search that found nothing
  if (view_.head().returned_epoch.load() != cursors_.seen_epoch.load(std::memory_order_relaxed) &&
      try_take_returned(me, taken)) {
    return true;
  }
  const auto position = view_.ring.claim_for_reading(cursors_, me, scan);
  if (scan.has_freed) wake_always(view_.head().slot_free);
  if (!position) return false;
  taken.place.at = *position;
  taken.is_taken = true;
  return true;
}

// Rule 6: the epoch is read before the search, and remembered only if the search finds nothing.
bool QueueCore::try_take_returned(Owner me, TakenRecord& taken) {
  const std::uint64_t epoch = view_.head().returned_epoch.load();
  if (const auto place = view_.claim_returned(me)) {
    taken.place = *place;
    taken.is_redelivered = true;
    taken.is_taken = true;
    return true;
  }
  cursors_.seen_epoch.store(epoch, std::memory_order_relaxed);  // relaxed: only this process reads it
  return false;
}

// Rule 6, as above.
bool QueueCore::has_returned() noexcept {
  const std::uint64_t epoch = view_.head().returned_epoch.load();
  if (epoch == cursors_.seen_epoch.load(std::memory_order_relaxed)) return false;  // relaxed: only this process
  if (view_.has_returned()) return true;
  cursors_.seen_epoch.store(epoch, std::memory_order_relaxed);
  return false;
}

// Takes over the leases of a record, then does `work` on the rest. If that fails for lack of something, the record
// goes back to the other consumers with all its leases; if nobody could use it, both end.
template <class Work>
void QueueCore::use_taken(const TakenRecord& taken, Owner me, std::vector<Lease>& leases, Work work) {
  const auto hand_back = [&] {
    hand_back_leases(leases);
    put_back(taken.place, me);
  };
  std::span<const SentLeaseWords> sent;
  try {
    if (taken.head.leases() > 0) {
      sent = view_.leases_of(taken.place, taken.head);
      receive_leases(object_.shared_membership(), sent, leases);
    }
    work();
  } catch (const Error& error) {
    if (error.code() == Errc::corrupt || error.code() == Errc::not_found) {
      end_leases(object_.shared_membership(), sent, leases);
      finish(taken.place, me);
    } else {
      hand_back();
    }
    throw;
  } catch (...) {
    hand_back();
    throw;
  }
}

HeldMemory QueueCore::adopt(const TakenRecord& taken, Owner me) {
  const Record& record = view_.record_of(taken.place);
  HeldMemory held;
  held.size_ = taken.head.bytes();
  if (taken.head.storage() == Storage::block) {
    const BlockRef block = block_of(record);
    view_.pool.adopt(block, me);
    held.block_ = std::bit_cast<std::uint64_t>(block);
    held.core_ = shared_from_this();
    held.data_ = view_.pool_data + view_.pool.offset_of(block);
    if (taken.head.bytes() > view_.pool.capacity_of(block)) fail_corrupt(taken.head, object_.handle());
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
  if (taken.head.bytes() > open.spec.parameters[0]) fail_corrupt(taken.head, object_.handle());
  return held;
}

// When the session is over, or in a forked child, the memory of a dropped message needs no freeing.
void QueueCore::free(HeldMemory& held) noexcept {
  try {
    if (held.is_overflow_) {
      object_.membership().close(held.overflow_);
    } else {
      const Owner me = object_.self();  // throws in a forked child, which must not write
      const auto block = std::bit_cast<BlockRef>(held.block_);
      const bool is_spent = held.is_copied_ && held.size_ <= kMostTakenOver;
      if (is_spent && view_.pool.owner_of(block) == me) take_over_spent(held.data_, held.size_);
      view_.pool.free(block, me, object_.membership());
    }
    wake_all(view_.head().bytes_free);
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

void QueueCore::finish(RecordPlace place, Owner me) {
  view_.finish(place, me);
  if (!place.is_flight) wake_in_turn(view_.head().slot_free);
}

void QueueCore::put_back(RecordPlace place, Owner me) {
  view_.give_back(place, me);
  ++view_.head().returned_epoch;
  wake_one(view_.head().record_ready);
}

}  // namespace drover::ipc
