#include "ipc/sync/condition_layout.hpp"

#include <algorithm>
#include <limits>
#include <new>

#include "ipc/wake/futex.hpp"
#include "ipc/wake/session_watch.hpp"

namespace drover::ipc {
namespace {

using Word = std::uint64_t;
using Cell = std::atomic<Word>;

constexpr Word kFree = 0;
constexpr Word kAwaited = 1;
constexpr Word kNotified = 2;
constexpr Word kStateMask = 3;
constexpr Word kAsleep = 4;
constexpr unsigned kOwnerShift = 3;
constexpr Word kOwnerMask = 0x1FFF;
constexpr unsigned kTicketShift = 16;
static_assert(kMaxParticipants <= kOwnerMask);

constexpr Word state_of(Word word) { return word & kStateMask; }
constexpr Owner owner_of(Word word) { return static_cast<Owner>(word >> kOwnerShift & kOwnerMask); }
constexpr Word ticket_of(Word word) { return word >> kTicketShift; }

void wake_if_asleep(Cell& cell, Word word) noexcept {
  if ((word & kAsleep) != 0) futex_wake(cell, 1);
}

bool notify_cell(Cell& cell, Word seen) noexcept {
  if (!cell.compare_exchange_strong(seen, (seen & ~(kStateMask | kAsleep)) | kNotified)) return false;
  wake_if_asleep(cell, seen);
  return true;
}

}  // namespace

// False if a notification came first.
bool ConditionPlace::give_up() const noexcept {
  Word seen = cell_->load();
  while (state_of(seen) == kAwaited) {
    if (cell_->compare_exchange_weak(seen, kFree)) return true;
  }
  return false;
}

bool ConditionPlace::spin(Patience& patience) const {
  for (int left = patience.pauses(); left > 0; --left) {
    if (cell_->load() != word_) {
      patience.helped();
      return true;
    }
    relax();
  }
  patience.failed();
  return false;
}

WaitResult ConditionPlace::sleep(const Waiting& waiting) const {
  const Word asleep = word_ | kAsleep;
  Word expected = word_;
  if (!cell_->compare_exchange_strong(expected, asleep)) return WaitResult::done;
  SessionWatch watch(waiting.membership, "condition");
  for (;;) {
    if (cell_->load() != asleep || waiting.is_woken_otherwise()) return WaitResult::done;
    if (waiting.deadline.has_passed() || waiting.is_interrupted())
      return give_up() ? WaitResult::timed_out : WaitResult::done;
    const auto longest = std::min<std::chrono::nanoseconds>(kLongestSleep, waiting.deadline.remaining());
    futex_sleep(*cell_, asleep, longest);
    watch.after_sleep();
  }
}

WaitResult ConditionPlace::await(const Waiting& waiting) const {
  if (!waiting.deadline.has_passed() && spin(waiting.patience)) return WaitResult::done;
  try {
    return sleep(waiting);
  } catch (...) {
    leave();
    throw;
  }
}

// Frees the cell only while it has the waiter's ticket, because a free cell may be taken by another waiter at once.
void ConditionPlace::leave() const noexcept {
  Word seen = cell_->load();
  while (state_of(seen) != kFree && ticket_of(seen) == ticket_of(word_)) {
    if (cell_->compare_exchange_weak(seen, kFree)) return;
  }
}

std::uint32_t ConditionCore::used() const noexcept { return std::min(layout_->used.load(), Condition::kMostWaiters); }

std::optional<ConditionPlace> ConditionCore::take_place(Owner self) const {
  const Word word = kAwaited | (Word{self} << kOwnerShift) | (layout_->next_ticket.fetch_add(1) << kTicketShift);
  for (std::uint32_t index = 0; index < Condition::kMostWaiters; ++index) {
    Cell& cell = layout_->cells.at(index);
    if (cell.load() != kFree) continue;
    std::uint32_t reached = layout_->used.load();
    while (reached <= index && !layout_->used.compare_exchange_weak(reached, index + 1)) {
    }
    Word expected = kFree;
    if (cell.compare_exchange_strong(expected, word)) return ConditionPlace(cell, word);
  }
  return std::nullopt;
}

bool ConditionCore::notify_one() const noexcept {
  for (;;) {
    Cell* oldest = nullptr;
    Word oldest_word = 0;
    for (std::uint32_t index = 0; index < used(); ++index) {
      const Word seen = layout_->cells.at(index).load();
      if (state_of(seen) != kAwaited) continue;
      if (oldest != nullptr && ticket_of(seen) >= ticket_of(oldest_word)) continue;
      oldest = &layout_->cells.at(index);
      oldest_word = seen;
    }
    if (oldest == nullptr) return false;
    if (notify_cell(*oldest, oldest_word)) return true;
  }
}

std::uint32_t ConditionCore::notify_all() const noexcept {
  std::uint32_t count = 0;
  for (std::uint32_t index = 0; index < used(); ++index) {
    Cell& cell = layout_->cells.at(index);
    bool is_notified = false;
    for (Word seen = cell.load(); state_of(seen) == kAwaited && !is_notified; seen = cell.load()) {
      is_notified = notify_cell(cell, seen);
    }
    if (is_notified) ++count;
  }
  return count;
}

std::uint32_t ConditionCore::waiting() const noexcept {
  std::uint32_t count = 0;
  for (std::uint32_t index = 0; index < used(); ++index) {
    if (state_of(layout_->cells.at(index).load()) == kAwaited) ++count;
  }
  return count;
}

void ConditionCore::recover(Owner dead) const noexcept {
  for (auto& cell : layout_->cells) {
    Word seen = cell.load();
    while (state_of(seen) != kFree && owner_of(seen) == dead) {
      if (!cell.compare_exchange_weak(seen, kFree)) continue;
      if (state_of(seen) == kNotified) static_cast<void>(notify_one());
      break;
    }
  }
  wake_all();
}

// A notifier may have been killed before it woke its cell.
void ConditionCore::wake_all() const noexcept {
  for (std::uint32_t index = 0; index < used(); ++index) {
    Cell& cell = layout_->cells.at(index);
    if (cell.load() != kFree) futex_wake(cell, std::numeric_limits<int>::max());
  }
}

const ObjectKindInfo condition_kind = {
    .layout_bytes = [](const ObjectSpec&) { return sizeof(ConditionLayout); },
    .format = [](std::byte* layout, const ObjectSpec&) { new (layout) ConditionLayout{}; },
    .recover = [](std::byte* layout, const ObjectSpec&, Owner dead) { ConditionCore(layout).recover(dead); },
    .wake_all = [](std::byte* layout, const ObjectSpec&) { ConditionCore(layout).wake_all(); }};

}  // namespace drover::ipc
