#include "drover/ipc/condition.hpp"

#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/object/left_alone.hpp"
#include "ipc/object/nested_handle.hpp"
#include "ipc/sync/condition_layout.hpp"
#include "ipc/wake/bell.hpp"

namespace drover {
namespace {

ObjectSpec spec_over(const ObjectHandle& lock) {
  ObjectSpec spec{.kind = ObjectKind::condition};
  ipc::put_handle(spec, 0, lock);
  return spec;
}

[[noreturn]] void fail_without_lock(const char* what, const ObjectHandle& handle) {
  throw Error(Errc::invalid_argument,
              fmt::format("a thread {} the condition {} without holding its lock", what, handle.to_string()),
              "acquire the lock, check or change what it guards, then wait or notify");
}

[[noreturn]] void fail_crowded(const ObjectHandle& handle) {
  throw Error(Errc::limit_reached,
              fmt::format("{} threads already wait on the condition {}", Condition::kMostWaiters, handle.to_string()),
              "let fewer threads wait, or spread them over several conditions");
}

}  // namespace

Condition::Condition(const std::shared_ptr<Membership>& membership, AnyLock lock)
    : object_(membership, spec_over(std::visit([](const auto& any) { return any.handle(); }, lock))),
      lock_(std::move(lock)),
      patience_(std::make_unique<ipc::Patience>()) {}

Condition::Condition(const std::shared_ptr<Membership>& membership)
    : Condition(membership, AnyLock(RLock(membership))) {}

Condition::Condition(const std::shared_ptr<Membership>& membership, const Lock& lock)
    : Condition(membership, AnyLock(Lock(membership, lock.handle()))) {}

Condition::Condition(const std::shared_ptr<Membership>& membership, const RLock& lock)
    : Condition(membership, AnyLock(RLock(membership, lock.handle()))) {}

Condition::Condition(std::shared_ptr<Membership> membership, const ObjectHandle& handle)
    : object_(std::move(membership), handle, ObjectKind::condition),
      lock_(open_lock(object_)),
      patience_(std::make_unique<ipc::Patience>()) {}

Condition::Condition(Condition&&) noexcept = default;
Condition& Condition::operator=(Condition&&) noexcept = default;
Condition::~Condition() = default;

Condition::AnyLock Condition::open_lock(const SharedObject& condition) {
  const ObjectHandle lock = ipc::get_handle(condition.spec(), 0);
  if (lock.kind == ObjectKind::lock) return AnyLock(Lock(condition.shared_membership(), lock));
  return AnyLock(RLock(condition.shared_membership(), lock));
}

ipc::ConditionCore Condition::core() const { return ipc::ConditionCore(object_.layout()); }

// self() throws in a forked child.
void Condition::require_lock(const char* what) const {
  static_cast<void>(object_.self());
  if (!is_own()) fail_without_lock(what, handle());
}

// The dead holder may have changed what others wait for and notified nobody. A death in here is a death with the lock
// held, so the next holder does the same.
LockResult Condition::notify_after_death(LockResult result) const noexcept {
  if (result == LockResult::acquired_after_death) static_cast<void>(core().notify_all());
  return result;
}

LockResult Condition::acquire(Deadline deadline) {
  return notify_after_death(std::visit([&](auto& lock) { return lock.acquire(deadline); }, lock_));
}

LockResult Condition::try_acquire() {
  return notify_after_death(std::visit([](auto& lock) { return lock.try_acquire(); }, lock_));
}

void Condition::release() {
  std::visit([](auto& lock) { lock.release(); }, lock_);
}

bool Condition::release_if_own() noexcept {
  return std::visit([](auto& lock) { return lock.release_if_own(); }, lock_);
}

bool Condition::is_own() const {
  return std::visit([](const auto& lock) { return lock.is_own(); }, lock_);
}

const ObjectHandle& Condition::lock_handle() const {
  return std::visit([](const auto& lock) -> const ObjectHandle& { return lock.handle(); }, lock_);
}

ConditionResult Condition::wait(Deadline deadline) {
  return wait_interruptibly(deadline, [] { return false; });
}

ConditionResult Condition::wait_interruptibly(Deadline deadline, const std::function<bool()>& is_interrupted) {
  require_lock("waits on");
  const auto place = core().take_place(object_.self());
  if (!place) fail_crowded(handle());
  bool is_alone = false;
  const auto is_over = [&] {
    if (is_interrupted()) return true;
    is_alone = deadline.is_never() && ipc::is_left_alone(object_);
    return is_alone;
  };
  const ConditionResult result =
      std::visit([&](auto& lock) { return wait_with(lock, *place, deadline, is_over); }, lock_);
  if (is_alone && result.wait == WaitResult::timed_out) ipc::fail_left_alone(object_);
  return result;
}

template <class LockType>
ConditionResult Condition::wait_with(LockType& lock, const ipc::ConditionPlace& place, Deadline deadline,
                                     const std::function<bool()>& is_interrupted) {
  const std::uint32_t depth = lock.release_whole();
  LockResult locked = LockResult::timed_out;
  const WaitResult waited = place.await({.membership = object_.membership(),
                                         .deadline = deadline,
                                         .patience = *patience_,
                                         .is_interrupted = is_interrupted,
                                         .is_woken_otherwise = [&] {
                                           locked = lock.acquire_from_dead(depth);
                                           return is_acquired(locked);
                                         }});
  if (!is_acquired(locked)) locked = lock.acquire_whole(depth);
  place.leave();  // not earlier: until the lock is held, a death passes the notification on
  return {.wait = waited, .lock = notify_after_death(locked)};
}

std::uint32_t Condition::notify(std::uint32_t count) {
  require_lock("notifies");
  std::uint32_t notified = 0;
  while (notified < count && core().notify_one()) ++notified;
  return notified;
}

std::uint32_t Condition::notify_all() {
  require_lock("notifies");
  return core().notify_all();
}

std::uint32_t Condition::waiting() const { return core().waiting(); }

}  // namespace drover
