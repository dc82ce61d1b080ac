#include "ipc/object_kinds.hpp"

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/array_layout.hpp"
#include "ipc/barrier_layout.hpp"
#include "ipc/condition_layout.hpp"
#include "ipc/event_layout.hpp"
#include "ipc/lock_layout.hpp"
#include "ipc/queue_layout.hpp"
#include "ipc/semaphore_layout.hpp"
#include "ipc/slab_layout.hpp"
#include "ipc/timeline_layout.hpp"
#include "ipc/value_layout.hpp"

namespace drover {

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
              "let all processes of a session use the same drover");
}

}  // namespace drover
