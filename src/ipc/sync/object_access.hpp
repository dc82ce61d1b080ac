// ipc/sync/object_access.hpp: the shared object behind a primitive, for hosts that wait in slices.
#pragma once

#include "drover/ipc/barrier.hpp"
#include "drover/ipc/condition.hpp"
#include "drover/ipc/event.hpp"
#include "drover/ipc/membership.hpp"
#include "drover/ipc/semaphore.hpp"

namespace drover::ipc {

/// A host that slices a wait without a deadline, to handle signals in between, must notice by itself that nobody is
/// left: `are_others_gone` and `fail_left_alone` take these objects.
struct ObjectAccess {
  static const SharedObject& of(const Barrier& barrier) { return barrier.object(); }
  static const SharedObject& of(const Condition& condition) noexcept { return condition.object_; }
  static const SharedObject& of(const Event& event) noexcept { return event.object_; }
  static const SharedObject& of(const Semaphore& semaphore) { return semaphore.object(); }
};

}  // namespace drover::ipc
