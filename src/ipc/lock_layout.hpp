// ipc/lock_layout.hpp: what a Lock or an RLock is in shared memory: one cell lock.
#pragma once

#include "ipc/cell_lock.hpp"
#include "ipc/object_kinds.hpp"

namespace drover {

extern const ObjectKindInfo lock_kind;
extern const ObjectKindInfo rlock_kind;

/// The error of a release by another than the holder.
[[noreturn]] void fail_not_holder(const CellLockLayout& cell, LockHolder self, const ObjectHandle& handle);

}  // namespace drover
