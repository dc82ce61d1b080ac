// ipc/slab_layout.hpp: what a slab is in shared memory, beside its file.
#pragma once

#include "ipc/object_kinds.hpp"

namespace drover {

extern const ObjectKindInfo slab_kind;

}  // namespace drover
