// ipc/object/object_kind.hpp: what the keeper must know about a kind of object.
#pragma once

#include <cstddef>
#include <functional>

#include "drover/ipc/membership.hpp"

namespace drover::ipc {

/// How the keeper makes, recovers and wakes objects of a kind. `layout` points behind the object's header. All
/// functions trust the spec, which is private to the keeper, and nothing in shared memory.
struct ObjectKindInfo {
  /// Size of the layout; throws `Errc::invalid_argument`, with the limits, for impossible parameters.
  std::size_t (*layout_bytes)(const ObjectSpec& spec) = nullptr;
  /// Makes the layout in zeroed memory.
  void (*format)(std::byte* layout, const ObjectSpec& spec) = nullptr;
  /// Repairs everything that `dead` held, and wakes its waiters. Called only after the kernel has reported the death;
  /// may be repeated, so it must derive everything from shared memory.
  void (*recover)(std::byte* layout, const ObjectSpec& spec, Owner dead) = nullptr;
  /// Wakes all sleepers on the object, so that they check the session.
  void (*wake_all)(std::byte* layout, const ObjectSpec& spec) = nullptr;
  /// Whether each object has a file of `parameters[0]` bytes, which the keeper holds.
  bool has_file = false;
  /// Whether a session has at most one such object, which lives as long as the session.
  bool is_single = false;
};

// Each kind is defined beside its layout.
extern const ObjectKindInfo queue_kind;
extern const ObjectKindInfo lock_kind;
extern const ObjectKindInfo rlock_kind;
extern const ObjectKindInfo semaphore_kind;
extern const ObjectKindInfo condition_kind;
extern const ObjectKindInfo event_kind;
extern const ObjectKindInfo barrier_kind;
extern const ObjectKindInfo value_kind;
extern const ObjectKindInfo array_kind;
extern const ObjectKindInfo overflow_kind;
extern const ObjectKindInfo slab_kind;
extern const ObjectKindInfo timelines_kind;

}  // namespace drover::ipc
