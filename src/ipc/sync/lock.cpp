#include "drover/ipc/lock.hpp"

#include <unistd.h>

#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/wake/bell.hpp"
#include "ipc/wake/cell_lock.hpp"

namespace drover {
namespace {

[[noreturn]] void fail_held_already(ipc::LockHolder self, const ObjectHandle& handle) {
  throw Error(
      Errc::invalid_argument,
      fmt::format("thread {} of process {} acquires the lock {}, which it already holds: it would wait forever",
                  self.thread, ::getpid(), handle.to_string()),
      "release it first, use an RLock, or pass a deadline if another thread forces its release");
}

}  // namespace

Lock::Lock(std::shared_ptr<Membership> membership)
    : object_(std::move(membership), ObjectSpec{.kind = ObjectKind::lock}),
      patience_(std::make_unique<ipc::Patience>()) {}

Lock::Lock(std::shared_ptr<Membership> membership, const ObjectHandle& handle)
    : object_(std::move(membership), handle, ObjectKind::lock), patience_(std::make_unique<ipc::Patience>()) {}

Lock::Lock(Lock&&) noexcept = default;
Lock& Lock::operator=(Lock&&) noexcept = default;
Lock::~Lock() = default;

ipc::CellLockLayout& Lock::cell() const {
  return *reinterpret_cast<ipc::CellLockLayout*>(ipc::layout_of(object_.data()));
}

LockResult Lock::acquire(Deadline deadline) {
  const ipc::LockHolder self = ipc::self_as_holder(object_.membership());
  const LockResult result = try_claim(cell(), self);
  if (is_acquired(result)) return result;
  if (deadline.is_never() && ipc::full_holder_of(cell()) == self) fail_held_already(self, handle());
  return claim(cell(), self, object_.membership(), deadline, *patience_);
}

LockResult Lock::try_acquire() { return try_claim(cell(), ipc::self_as_holder(object_.membership())); }

void Lock::release() {
  const ipc::LockHolder self = ipc::self_as_holder(object_.membership());
  if (!ipc::free_own(cell(), self)) [[unlikely]]
    ipc::fail_not_holder(cell(), self, handle());
}

void Lock::force_release() {
  const ipc::LockHolder self = ipc::self_as_holder(object_.membership());
  if (!ipc::free_any(cell())) [[unlikely]]
    ipc::fail_not_holder(cell(), self, handle());
}

std::uint32_t Lock::release_whole() {
  release();
  return 1;
}

LockResult Lock::acquire_whole(std::uint32_t) { return acquire(); }

LockResult Lock::acquire_from_dead(std::uint32_t) {
  return ipc::claim_from_dead(cell(), ipc::self_as_holder(object_.membership()));
}

bool Lock::release_if_own() noexcept { return object_.is_open() && ipc::free_if_own(cell(), object_.membership()); }

bool Lock::is_held() const { return holder_of(cell()) != kNobody; }

bool Lock::is_own() const { return ipc::is_held_by_this_thread(cell(), object_.membership()); }

}  // namespace drover
