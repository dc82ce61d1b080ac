// The producers' half of QueueCore.
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/queue/cache_lines.hpp"
#include "ipc/queue/queue_core.hpp"

namespace drover {
namespace {

constexpr Position kFetchedAhead = 4;  // slots

}  // namespace

using detail::HeldMemory;

PutResult QueueCore::put(std::span<const std::byte> message, std::span<Lease> leases, Deadline deadline) {
  const Owner me = object_.self();
  const SendableLeases sendable(leases, object_.membership());
  if (message.size() > kInlineBytes) {
    PutResult result = PutResult::timed_out;
    HeldMemory held = allocate(message.size(), me, deadline, result);
    if (held.core_ == nullptr) return result;
    std::memcpy(held.data_, message.data(), message.size());
    held.is_copied_ = true;
    return put_held(held, sendable, me, deadline);
  }
  const Claimed claimed = claim(me, deadline);
  if (claimed.result != PutResult::put) return claimed.result;
  fetch_lines_ahead(claimed.position + kFetchedAhead, message.size());
  Record& record = view_.ring.slot(claimed.position).record;
  const std::uint64_t index = view_.ring.index_of(claimed.position);
  const bool is_small = message.size() <= kSmallBytes;
  const RecordHead plain = RecordHead::of(message.size(), is_small ? Storage::small : Storage::inlined);
  record.store_head(sendable.write(plain, view_.leases_of_slot(index)));
  if (is_small) {
    record.store_small(message.data(), message.size());
  } else {
    std::memcpy(view_.inlined_of_slot(index), message.data(), message.size());
  }
  publish_record(claimed.position, me);
  sendable.give_away();
  return PutResult::put;
}

// Beyond the line of the word, and as far as the processor does not do it by itself: it does where messages lie
// close.
void QueueCore::fetch_lines_ahead(Position position, std::size_t bytes) const noexcept {
  if (bytes <= kFirstLineBytes || bytes > kInlineBytes / 2) return;
  if (bytes <= kSmallBytes) {
    fetch_for_writing(reinterpret_cast<const std::byte*>(&view_.ring.slot(position)) + kCacheLine, kCacheLine);
  } else {
    fetch_for_writing(view_.inlined_of_slot(view_.ring.index_of(position)), bytes);
  }
}

PutResult QueueCore::publish(Loan& loan, Deadline deadline) {
  require(loan.is_open() && loan.held_.core_->object_.handle() == object_.handle(),
          "what is published must be a loan of the same queue",
          "call loan() of the queue to which publish() belongs");
  return put_held(loan.held_, SendableLeases({}, object_.membership()), object_.self(), deadline);
}

Loan QueueCore::loan(std::size_t bytes, Deadline deadline) {
  require(bytes > 0, "a loan has at least one byte");
  Loan loan;
  PutResult result = PutResult::timed_out;
  loan.held_ = allocate(bytes, object_.self(), deadline, result);
  loan.result_ = loan.is_open() ? PutResult::put : result;
  return loan;
}

// The memory belongs to the record from the publication on: recovery leaves what a readable record refers to.
PutResult QueueCore::put_held(HeldMemory& held, const SendableLeases& leases, Owner me, Deadline deadline) {
  const Claimed claimed = claim(me, deadline);
  if (claimed.result != PutResult::put) return claimed.result;
  Record& record = view_.ring.slot(claimed.position).record;
  const auto plain =
      RecordHead::of(held.size_, held.is_overflow_ ? Storage::overflow : Storage::block, held.is_copied_);
  record.store_head(leases.write(plain, view_.leases_of_slot(view_.ring.index_of(claimed.position))));
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

QueueCore::Claimed QueueCore::claim(Owner me, Deadline deadline) {
  Claimed claimed = try_claim(me);
  if (!claimed && !deadline.has_passed()) {
    for (int left = put_patience_.pauses(); left > 0 && !view_.ring.has_much_room(cursors_); --left) relax();
    claimed = wait_on([this] { return put_activity(); }, head().slot_free, object_.membership(), deadline,
                      put_patience_, [&] { return try_claim(me); });
  }
  if (claimed.result == PutResult::put) {
    use_->putters.note();
    pass_room_on();
  }
  return claimed;
}

// Slots come free out of order, and one ring may wake one who finds that the next is not free yet. So whoever gets
// one looks whether there is one for the next sleeper.
void QueueCore::pass_room_on() noexcept {
  if (may_have_sleepers(head().slot_free) && view_.ring.has_room(cursors_)) ring_in_turn(head().slot_free);
}

// A queue closed between the look and the claim has no place for this record: a consumer may have found it drained.
QueueCore::Claimed QueueCore::try_claim(Owner me) {
  if (is_closed()) return {.position = 0, .result = PutResult::closed};
  auto position = view_.ring.claim_for_writing(cursors_, me);
  if (!position && is_alone(use_->putters, use_->getters)) {
    position = view_.ring.claim_for_writing(cursors_, me);  // it left room before it went
    if (!position) return {.position = 0, .result = PutResult::peer_lost};
  }
  if (!position) return {};
  if (!is_closed()) return {.position = *position, .result = PutResult::put};
  view_.ring.abandon(*position, me);
  ring_always(head().record_ready);
  return {.position = 0, .result = PutResult::closed};
}

void QueueCore::publish_record(Position position, Owner me) {
  view_.ring.publish(position, me);
  // Of a closed queue this may be the last record, which others wait for to learn that it is drained.
  is_closed() ? ring_always(head().record_ready) : ring_in_turn(head().record_ready);
}

HeldMemory QueueCore::allocate(std::size_t bytes, Owner me, Deadline deadline, PutResult& result) {
  HeldMemory held =
      wait_on([this] { return put_activity(); }, head().bytes_free, object_.membership(), deadline, bytes_patience_,
              [&] {
                if (is_closed()) {
                  result = PutResult::closed;
                  return std::optional(HeldMemory{});
                }
                HeldMemory found = try_allocate(bytes, me, deadline);
                if (found.core_ == nullptr && is_alone(use_->putters, use_->getters)) {
                  found = try_allocate(bytes, me, deadline);
                  result = PutResult::peer_lost;
                  return std::optional(std::move(found));
                }
                return found.core_ != nullptr ? std::optional(std::move(found)) : std::nullopt;
              })
          .value_or(HeldMemory{});
  return held;
}

HeldMemory QueueCore::try_allocate(std::size_t bytes, Owner me, Deadline deadline) {
  if (view_.pool.is_too_large(bytes)) return has_overflow() ? HeldMemory{} : make_overflow(bytes);
  const auto block = view_.pool.allocate(bytes, me, object_.membership(), deadline);
  HeldMemory held;
  if (!block) return held;
  held.core_ = shared_from_this();
  held.data_ = view_.pool_data + view_.pool.offset_of(*block);
  held.size_ = bytes;
  held.block_ = std::bit_cast<std::uint64_t>(*block);
  return held;
}

// A message that is larger than all the queue's memory has an object of its own. None is made while one waits in the
// queue, so that the bound on bytes is exceeded by little more than what several put, or hold, at the same moment.
HeldMemory QueueCore::make_overflow(std::size_t bytes) {
  const ObjectSpec spec{.kind = ObjectKind::overflow, .parameters = {bytes, object_.handle().generation}};
  const OpenObject made = object_.membership().create(spec);
  HeldMemory held;
  held.core_ = shared_from_this();
  held.data_ = layout_of(made.data);
  held.size_ = bytes;
  held.overflow_ = made.handle;
  held.is_overflow_ = true;
  return held;
}

bool QueueCore::has_overflow() const noexcept {
  bool found = false;
  for_each_record(view_,
                  [&](const Record& record) { found = found || record.load_head().storage() == Storage::overflow; });
  return found;
}

}  // namespace drover
