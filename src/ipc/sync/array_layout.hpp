// ipc/sync/array_layout.hpp: what a SharedArray is in shared memory: its elements. Its lock is an object of its own.
#pragma once

#include "ipc/object/object_kind.hpp"

namespace drover {

extern const ObjectKindInfo array_kind;

}  // namespace drover
