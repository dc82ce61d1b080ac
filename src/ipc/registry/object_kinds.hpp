// ipc/registry/object_kinds.hpp: the kinds of objects by number.
#pragma once

#include "ipc/object/object_kind.hpp"

namespace drover::ipc {

/// The functions of a kind; throws `Errc::corrupt` for an unknown number.
const ObjectKindInfo& info_of(ObjectKind kind);

}  // namespace drover::ipc
