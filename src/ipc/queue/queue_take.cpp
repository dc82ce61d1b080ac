// How consumers take records, and let go of them: the lower half of QueueCore's work for them.
#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/queue/cache_lines.hpp"
#include "ipc/queue/queue_core.hpp"

namespace drover {
namespace {

bool fits(RecordHead record) noexcept {
  if (record.leases() > kMostLeases) return false;
  switch (record.storage()) {
    case Storage::small: return record.bytes() <= kSmallBytes && !record.is_copied();
    case Storage::inlined: return record.bytes() <= kInlineBytes && !record.is_copied();
    case Storage::block:
    case Storage::overflow: return record.bytes() > 0;
  }
  return false;
}

}  // namespace

QueueCore::Taken QueueCore::take(Owner me, Deadline deadline) {
  Taken taken = wait_on([this] { return get_activity(); }, head().record_ready, object_.membership(), deadline,
                        get_patience_, [&] { return try_take(me); });
  if (!taken.is_taken) {
    if (is_watched_.load(std::memory_order_relaxed)) watch_again();  // relaxed: set by this process before it polled
    return taken;
  }
  use_->getters.note();
  pass_records_on();
  taken.head = record_of(taken).load_head();
  if (fits(taken.head)) return taken;
  finish(taken, me);
  fail_corrupt(taken.head);
}

// When they have been read: the producer will write them again, one lap later.
void QueueCore::take_lines_over(const Taken& taken) const noexcept {
  if (taken.is_flight) return;
  const std::size_t bytes = taken.head.bytes();
  if (taken.head.storage() == Storage::inlined) {
    take_over(inlined_of(taken), bytes);
  } else if (taken.head.storage() == Storage::small && bytes > kFirstLineBytes) {
    view_.ring.slot(taken.place).taken_over.store(1, std::memory_order_relaxed);  // relaxed: nobody reads it
  }
}

// Records become ready out of order, and one ring may wake one who finds that the next is not ready yet. So whoever
// gets one looks whether there is one for the next sleeper.
void QueueCore::pass_records_on() noexcept {
  if (!may_have_sleepers(head().record_ready)) return;
  if (view_.ring.has_record(cursors_) || has_returned()) ring_in_turn(head().record_ready);
}

QueueCore::Taken QueueCore::try_take(Owner me) {
  Taken taken;
  ReadLook look;
  if (try_take_now(me, taken, look)) return taken;
  const bool is_at_end = is_closed();
  const bool is_lost = !is_at_end && is_alone(use_->getters, use_->putters);
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
  if (look.has_freed) ring_always(head().slot_free);
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
  ring_in_turn(head().slot_free);
}

// Lets the other consumers have it, under the same key.
void QueueCore::put_back(const Taken& taken, Owner me) {
  if (taken.is_flight) {
    auto& word = view_.flights[taken.place].word;
    word.store(make_slot_word(word.load() >> kLapShift, SlotState::returned));
  } else {
    view_.ring.give_back(taken.place, me);
  }
  ++head().returned_epoch;
  ring_one(head().record_ready);
}

void QueueCore::fail_corrupt(RecordHead record) const {
  throw Error(Errc::corrupt,
              fmt::format("a record of {} bytes in storage {} in {} makes no sense", record.bytes(),
                          static_cast<int>(record.storage()), object_.handle().to_string()),
              "a process of the session has written where it must not; end the session and look for that process");
}

}  // namespace drover
