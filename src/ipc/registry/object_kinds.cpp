#include "ipc/registry/object_kinds.hpp"

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::ipc {

const ObjectKindInfo& info_of(ObjectKind kind) {
  switch (kind) {
    case ObjectKind::queue: return queue_kind;
    case ObjectKind::lock: return lock_kind;
    case ObjectKind::rlock: return rlock_kind;
    case ObjectKind::semaphore: return semaphore_kind;
    case ObjectKind::condition: return condition_kind;
    case ObjectKind::event: return event_kind;
    case ObjectKind::barrier: return barrier_kind;
    case ObjectKind::value: return value_kind;
    case ObjectKind::array: return array_kind;
    case ObjectKind::overflow: return overflow_kind;
    case ObjectKind::slab: return slab_kind;
    case ObjectKind::timelines: return timelines_kind;
  }
  throw Error(Errc::corrupt, fmt::format("{} is not the number of a kind of shared object", static_cast<int>(kind)),
              "use the same version of drover in all processes of a session");
}

}  // namespace drover::ipc
