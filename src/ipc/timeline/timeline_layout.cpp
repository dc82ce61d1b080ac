#include "ipc/timeline/timeline_layout.hpp"

#include <climits>
#include <new>

#include "ipc/wake/futex.hpp"

namespace drover::ipc {
namespace {

TimelineLayout& timelines_at(std::byte* layout) { return *reinterpret_cast<TimelineLayout*>(layout); }

void recover(std::byte* layout, const ObjectSpec&, Owner dead) {
  for (TimelineSlot& slot : timelines_at(layout).slots) {
    if (slot.owner.load() == dead) end_ownership(slot);
  }
}

void wake_timelines(std::byte* layout, const ObjectSpec&) {
  for (TimelineSlot& slot : timelines_at(layout).slots) {
    if (slot.owner.load() != kNobody) futex_wake(slot.word, INT_MAX);
  }
}

}  // namespace

const ObjectKindInfo timelines_kind = {
    .layout_bytes = [](const ObjectSpec&) { return sizeof(TimelineLayout); },
    .format = [](std::byte* layout, const ObjectSpec&) { new (layout) TimelineLayout{}; },
    .recover = recover,
    .wake_all = wake_timelines,
    .is_single = true};

void lose_rest(TimelineSlot& slot) noexcept {
  const std::uint64_t done = slot.word.load();
  const std::uint64_t submitted = slot.submitted.load();
  if (done >= submitted) return;
  slot.last_good.store(done);
  const std::uint64_t next = start_of_epoch(epoch_of(submitted) + 1);
  slot.submitted.store(next);
  slot.word.store(next);
  futex_wake(slot.word, INT_MAX);
}

void end_ownership(TimelineSlot& slot) noexcept {
  lose_rest(slot);
  slot.submitted.store(slot.word.load());  // the stream may have been given more work than was announced
  slot.owner.store(kNobody);
}

}  // namespace drover::ipc
