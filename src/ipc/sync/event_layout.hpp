// ipc/sync/event_layout.hpp: an Event in shared memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "ipc/object/object_kind.hpp"
#include "ipc/wake/bell.hpp"

namespace drover::ipc {

/// Bit 0 of `state` is the flag. The other bits count its sets, so that a waiter notices a set that is cleared before
/// the waiter checks. Changed by read-modify-write only.
struct EventLayout {
  std::atomic<std::uint64_t> state;
  Bell bell;
};
static_assert(std::is_standard_layout_v<EventLayout>);

}  // namespace drover::ipc
