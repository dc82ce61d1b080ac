#include "ipc/wake/cell_lock.hpp"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <new>
#include <string>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/object/object_kind.hpp"
#include "ipc/wake/bell.hpp"
#include "ipc/wake/futex.hpp"
#include "ipc/wake/session_watch.hpp"

namespace drover::ipc {
namespace {

using lock_word::is_free;
using lock_word::kDeath;
using lock_word::kWaiting;

// Sets the waiting mark on a held word and returns it; 0 if the lock has become free.
std::uint32_t announce(CellLockLayout& cell) noexcept {
  std::uint32_t seen = cell.word.load();
  while (!is_free(seen)) {
    if (cell.word.compare_exchange_weak(seen, seen | kWaiting)) return seen | kWaiting;
  }
  return 0;
}

// Nobody would ever free a lock of an impossible holder.
void require_possible(std::uint32_t held) {
  const Owner owner = lock_word::holder_in(held).owner;
  if (owner <= kMaxParticipants) [[likely]]
    return;
  throw Error(
      Errc::corrupt,
      fmt::format("a lock in shared memory is held by participant {}, but the highest number is {}: something "
                  "has overwritten it",
                  owner, kMaxParticipants),
      "end the session, and look for a process that writes outside its memory");
}

// Nor one of a number that no participant has: recovery frees the locks of a participant before its number. The
// session is checked again because its end removes participants without recovery.
void require_participant(const CellLockLayout& cell, std::uint32_t held, const Membership& membership) {
  const Owner owner = lock_word::holder_in(held).owner;
  if (membership.has_participant(owner) || cell.word.load() != held) [[likely]]
    return;
  membership.check();
  throw Error(Errc::corrupt,
              fmt::format("a lock in shared memory is held by participant {}, which does not exist: something has "
                          "overwritten it",
                          owner),
              "end the session, and look for a process that writes outside its memory");
}

LockResult sleep_and_claim(CellLockLayout& cell, LockHolder self, const Membership& membership, Deadline deadline) {
  SessionWatch watch(membership, "lock");
  for (;;) {
    const std::uint32_t announced = announce(cell);
    if (announced != 0) {
      require_possible(announced);
      if (deadline.has_passed()) return LockResult::timed_out;
      const auto longest = std::min<std::chrono::nanoseconds>(kLongestSleep, deadline.remaining());
      futex_sleep(cell.word, announced, longest);
      watch.after_sleep();
      require_participant(cell, announced, membership);
    }
    const LockResult result = try_claim(cell, self, kWaiting);
    if (result != LockResult::timed_out) return result;
  }
}

// Shared by the inner locks of all objects, each of which is held only briefly.
Patience& cell_patience() {
  static Patience patience;
  return patience;
}

[[noreturn]] void fail_inside(LockHolder self) {
  throw Error(Errc::invalid_argument,
              fmt::format("thread {} of participant {} changes a shared object from within a change of the same "
                          "object: it would wait for itself",
                          self.thread, self.owner),
              "let what you pass to `update` only compute the new value");
}

CellLockLayout& cell_at(std::byte* layout) { return *reinterpret_cast<CellLockLayout*>(layout); }

std::string describe(LockHolder holder, LockHolder self) {
  if (holder.owner == kNobody) return "nobody holds it";
  if (holder.owner != self.owner) {
    return fmt::format("thread {} of participant {} holds it", holder.thread, holder.owner);
  }
  return fmt::format("thread {} of this process holds it", holder.thread);
}

constexpr ObjectKindInfo kOneCell = {
    .layout_bytes = [](const ObjectSpec&) { return sizeof(CellLockLayout); },
    .format = [](std::byte* layout, const ObjectSpec&) { new (layout) CellLockLayout{}; },
    .recover = [](std::byte* layout, const ObjectSpec&, Owner dead) { recover(cell_at(layout), dead); },
    .wake_all = [](std::byte* layout, const ObjectSpec&) { wake_all(cell_at(layout)); }};

}  // namespace

LockResult claim(CellLockLayout& cell, LockHolder self, const Membership& membership, Deadline deadline,
                 Patience& patience) {
  LockResult result = try_claim(cell, self);
  if (result != LockResult::timed_out || (!deadline.is_never() && deadline.has_passed())) return result;
  for (int look = patience.pauses(); look > 0; --look) {
    relax();
    result = try_claim(cell, self);
    if (result == LockResult::timed_out) continue;
    patience.helped();
    return result;
  }
  patience.failed();
  return sleep_and_claim(cell, self, membership, deadline);
}

LockResult claim_from_dead(CellLockLayout& cell, LockHolder self) noexcept {
  std::uint32_t seen = cell.word.load();
  while (is_free(seen) && (seen & kDeath) != 0) {
    const std::uint32_t claimed = lock_word::stamp_of(self) | (seen & kWaiting);
    if (cell.word.compare_exchange_weak(seen, claimed)) return lock_word::outcome(seen);
  }
  return LockResult::timed_out;
}

bool free_any(CellLockLayout& cell) noexcept {
  std::uint32_t seen = cell.word.load();
  while (!is_free(seen)) {
    if (!cell.word.compare_exchange_weak(seen, 0)) continue;
    if ((seen & kWaiting) != 0) wake_one(cell);
    return true;
  }
  return false;
}

bool recover(CellLockLayout& cell, Owner dead) noexcept {
  std::uint32_t seen = cell.word.load();
  bool was_held = false;
  while (!was_held && !is_free(seen) && lock_word::holder_in(seen).owner == dead) {
    was_held = cell.word.compare_exchange_weak(seen, kDeath);
  }
  wake_all(cell);
  return was_held;
}

void wake_one(CellLockLayout& cell) noexcept { futex_wake(cell.word, 1); }

void wake_all(CellLockLayout& cell) noexcept { futex_wake(cell.word, INT_MAX); }

CellGuard::CellGuard(CellLockLayout& cell, const Membership& membership)
    : cell_(cell), membership_(membership), self_(self_as_holder(membership)) {
  if (is_acquired(try_claim(cell_, self_))) return;
  if (full_holder_of(cell_) == self_) fail_inside(self_);
  static_cast<void>(claim(cell_, self_, membership, Deadline::never(), cell_patience()));
}

// A child forked meanwhile has a copy of the guard, but the lock is its parent's.
CellGuard::~CellGuard() {
  if (membership_.self() == self_.owner) static_cast<void>(free_own(cell_, self_));
}

const ObjectKindInfo lock_kind = kOneCell;
const ObjectKindInfo rlock_kind = kOneCell;

void fail_not_holder(const CellLockLayout& cell, LockHolder self, const ObjectHandle& handle) {
  throw Error(Errc::invalid_argument,
              fmt::format("thread {} of process {} (participant {}) releases the {} {}, which it does not hold: {}",
                          self.thread, ::getpid(), self.owner, to_string(handle.kind), handle.to_string(),
                          describe(full_holder_of(cell), self)),
              "release a lock in the thread that acquired it, once for each acquisition");
}

}  // namespace drover::ipc
