#include "drover/ipc/lock.hpp"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/wake/bell.hpp"
#include "ipc/wake/cell_lock.hpp"

namespace drover {
namespace {

// Only the holder reads or writes the depth while the word has its stamp, and a claimant overwrites it. So it needs
// no repair after a death.
std::uint32_t depth_of(const ipc::CellLockLayout& cell) { return cell.depth.load(std::memory_order_relaxed); }

void set_depth(ipc::CellLockLayout& cell, std::uint32_t depth) { cell.depth.store(depth, std::memory_order_relaxed); }

LockResult acquire_again(ipc::CellLockLayout& cell, const ObjectHandle& handle) {
  const std::uint32_t depth = depth_of(cell);
  if (depth == std::numeric_limits<std::uint32_t>::max()) {
    throw Error(Errc::limit_reached, fmt::format("the rlock {} was acquired {} times", handle.to_string(), depth),
                "release it once for each acquisition");
  }
  set_depth(cell, depth + 1);
  return LockResult::acquired;
}

// Requires: `self` holds it.
void release_once(ipc::CellLockLayout& cell, ipc::LockHolder self) {
  const std::uint32_t depth = depth_of(cell);
  if (depth > 1) {
    set_depth(cell, depth - 1);
  } else {
    static_cast<void>(ipc::free_own(cell, self));
  }
}

LockResult first_acquired(ipc::CellLockLayout& cell, LockResult result) {
  if (is_acquired(result)) set_depth(cell, 1);
  return result;
}

}  // namespace

RLock::RLock(std::shared_ptr<Membership> membership)
    : object_(std::move(membership), ObjectSpec{.kind = ObjectKind::rlock}),
      patience_(std::make_unique<ipc::Patience>()) {}

RLock::RLock(std::shared_ptr<Membership> membership, const ObjectHandle& handle)
    : object_(std::move(membership), handle, ObjectKind::rlock), patience_(std::make_unique<ipc::Patience>()) {}

RLock::RLock(RLock&&) noexcept = default;
RLock& RLock::operator=(RLock&&) noexcept = default;
RLock::~RLock() = default;

ipc::CellLockLayout& RLock::cell() const {
  return *reinterpret_cast<ipc::CellLockLayout*>(ipc::layout_of(object_.data()));
}

LockResult RLock::acquire(Deadline deadline) {
  const ipc::LockHolder self = ipc::self_as_holder(object_.membership());
  const LockResult quick = try_claim(cell(), self);
  if (is_acquired(quick)) return first_acquired(cell(), quick);
  if (ipc::full_holder_of(cell()) == self) return acquire_again(cell(), handle());
  return first_acquired(cell(), claim(cell(), self, object_.membership(), deadline, *patience_));
}

LockResult RLock::try_acquire() {
  const ipc::LockHolder self = ipc::self_as_holder(object_.membership());
  if (ipc::full_holder_of(cell()) == self) return acquire_again(cell(), handle());
  return first_acquired(cell(), try_claim(cell(), self));
}

void RLock::release() {
  const ipc::LockHolder self = ipc::self_as_holder(object_.membership());
  if (ipc::full_holder_of(cell()) != self) [[unlikely]]
    ipc::fail_not_holder(cell(), self, handle());
  release_once(cell(), self);
}

bool RLock::release_if_own() noexcept {
  if (!object_.is_open() || !is_own()) return false;
  release_once(cell(), {.owner = object_.membership().self(), .thread = ipc::known_thread_tag()});
  return true;
}

bool RLock::is_held() const { return holder_of(cell()) != kNobody; }

bool RLock::is_own() const { return ipc::is_held_by_this_thread(cell(), object_.membership()); }

std::uint32_t RLock::depth() const { return is_own() ? depth_of(cell()) : 0; }

std::uint32_t RLock::release_whole() {
  const ipc::LockHolder self = ipc::self_as_holder(object_.membership());
  const std::uint32_t depth = depth_of(cell());
  if (!ipc::free_own(cell(), self)) ipc::fail_not_holder(cell(), self, handle());
  return depth;
}

LockResult RLock::acquire_whole(std::uint32_t depth) {
  const LockResult result = acquire(Deadline::never());
  set_depth(cell(), depth);
  return result;
}

LockResult RLock::acquire_from_dead(std::uint32_t depth) {
  const LockResult result = ipc::claim_from_dead(cell(), ipc::self_as_holder(object_.membership()));
  if (is_acquired(result)) set_depth(cell(), depth);
  return result;
}

}  // namespace drover
