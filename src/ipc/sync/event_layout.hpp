// ipc/sync/event_layout.hpp: what an Event is in shared memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "ipc/object/object_kind.hpp"
#include "ipc/wake/bell.hpp"

namespace drover {

/// Bit 0 of `state` says that the event is set, the rest counts how often it was, so that a waiter notices a set that
/// is cleared before it looks. Changed by compare-and-swap only.
struct EventLayout {
  std::atomic<std::uint64_t> state;
  Bell bell;
};
static_assert(std::is_standard_layout_v<EventLayout>);

extern const ObjectKindInfo event_kind;

}  // namespace drover
