#include "drover/ipc/semaphore.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/object/local_openings.hpp"
#include "ipc/sync/semaphore_layout.hpp"
#include "ipc/wake/bell.hpp"

namespace drover {
namespace {

[[noreturn]] void fail_count(std::uint64_t count, const ObjectHandle& handle) {
  throw Error(Errc::limit_reached,
              fmt::format("cannot release {} permits of the semaphore {}: the limit is {}", count, handle.to_string(),
                          Semaphore::kMostPermits),
              "release as many as were acquired");
}

}  // namespace

struct Semaphore::State {
  explicit State(SharedObject opened)
      : object(std::move(opened)),
        core(object.layout(), object.spec()),
        opening(object, [] {}, [this] { core.forsake(object.membership().self()); }) {}

  SharedObject object;
  ipc::SemaphoreCore core;
  ipc::Patience patience;
  ipc::LocalOpening opening;
};

Semaphore::Semaphore(std::shared_ptr<Membership> membership, std::uint64_t initial)
    : Semaphore(std::move(membership), initial, false) {}

Semaphore::Semaphore(std::shared_ptr<Membership> membership, std::uint64_t initial, bool is_bounded)
    : state_(std::make_unique<State>(SharedObject(
          std::move(membership), ipc::SemaphoreSpec{.initial = initial, .is_bounded = is_bounded}.pack()))) {}

Semaphore::Semaphore(std::shared_ptr<Membership> membership, const ObjectHandle& handle)
    : state_(std::make_unique<State>(SharedObject(std::move(membership), handle, ObjectKind::semaphore))) {}

Semaphore::Semaphore(Semaphore&&) noexcept = default;
Semaphore& Semaphore::operator=(Semaphore&&) noexcept = default;
Semaphore::~Semaphore() = default;

ipc::Bell& Semaphore::bell() const { return state_->core.bell(); }

const SharedObject& Semaphore::object() const { return state_->object; }

WaitResult Semaphore::acquire(Deadline deadline) {
  const Owner self = state_->object.self();
  const bool is_done = ipc::wait_on([] { return "semaphore"; }, bell(), state_->object, deadline, state_->patience,
                                    [&] { return state_->core.take(self); });
  return is_done ? WaitResult::done : WaitResult::timed_out;
}

bool Semaphore::try_acquire() { return state_->core.take(state_->object.self()); }

void Semaphore::release(std::uint64_t count) {
  const Owner self = state_->object.self();
  if (count > kMostPermits) fail_count(count, handle());
  for (; count > 0; --count) state_->core.give(self);
}

std::uint64_t Semaphore::value() const { return state_->core.value(); }

bool Semaphore::is_bounded() const { return ipc::SemaphoreSpec::unpack(state_->object.spec()).is_bounded; }

const ObjectHandle& Semaphore::handle() const { return state_->object.handle(); }

BoundedSemaphore::BoundedSemaphore(std::shared_ptr<Membership> membership, std::uint64_t initial)
    : Semaphore(std::move(membership), initial, true) {}

BoundedSemaphore::BoundedSemaphore(std::shared_ptr<Membership> membership, const ObjectHandle& handle)
    : Semaphore(std::move(membership), handle) {
  require(is_bounded(), "the handle names a semaphore that is not bounded", "open it as a Semaphore");
}

}  // namespace drover
