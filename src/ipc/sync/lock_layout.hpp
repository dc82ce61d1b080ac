// ipc/sync/lock_layout.hpp: what a Lock or an RLock is in shared memory: one cell lock.
#pragma once

#include "ipc/object/object_kind.hpp"
#include "ipc/wake/cell_lock.hpp"

namespace drover {

extern const ObjectKindInfo lock_kind;
extern const ObjectKindInfo rlock_kind;

/// The error of a release by another than the holder.
[[noreturn]] void fail_not_holder(const CellLockLayout& cell, LockHolder self, const ObjectHandle& handle);

}  // namespace drover
