// ipc/object/object_kind.hpp: what the keeper must know of a kind of object; each kind has one, beside its layout.
#pragma once

#include <cstddef>
#include <functional>

#include "drover/ipc/membership.hpp"

namespace drover {

/// How the keeper makes, recovers and wakes objects of a kind. `layout` points behind the object's header. All of
/// it trusts the spec, which the keeper keeps to itself, and nothing that lies in shared memory.
struct ObjectKindInfo {
  /// Size of the layout; throws `Errc::invalid_argument`, with the limits, for parameters that can not be.
  std::size_t (*layout_bytes)(const ObjectSpec& spec) = nullptr;
  /// Makes the layout in zeroed memory.
  void (*format)(std::byte* layout, const ObjectSpec& spec) = nullptr;
  /// Sets right everything that `dead` held, and tells or wakes whoever waited for it. Called only after the
  /// kernel has reported the death; may be repeated. Every function here must be derived from shared memory alone.
  void (*recover)(std::byte* layout, const ObjectSpec& spec, Owner dead) = nullptr;
  /// Wakes everybody who sleeps on the object, so that they look again at the session.
  void (*wake_all)(std::byte* layout, const ObjectSpec& spec) = nullptr;
  /// Each object of the kind has a file, of `parameters[0]` bytes, that the keeper holds for it.
  bool has_file = false;
  /// A session has one such object at most, which lives as long as the session.
  bool is_single = false;
};

}  // namespace drover
