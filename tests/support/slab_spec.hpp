// tests/support/slab_spec.hpp: the simplest object with a file.
#pragma once

#include <cstdint>

#include "drover/ipc/membership.hpp"

namespace drover::test {

/// The spec of a slab with a file of `bytes`.
inline ObjectSpec slab_spec(std::uint64_t bytes) { return {.kind = ObjectKind::slab, .parameters = {bytes}}; }

}  // namespace drover::test
