// ipc/object/nested_handle.hpp: the handle of one object in the spec of another, such as a condition's lock.
#pragma once

#include <cstddef>

#include "drover/ipc/membership.hpp"

namespace drover::ipc {

/// Parameters that a handle takes.
inline constexpr std::size_t kHandleParameters = 3;

/// Writes `handle` into the parameters of `spec` from `first` on.
inline void put_handle(ObjectSpec& spec, std::size_t first, const ObjectHandle& handle) {
  spec.parameters.at(first) = (std::uint64_t{handle.slab} << 16U) | static_cast<std::uint16_t>(handle.kind);
  spec.parameters.at(first + 1) = handle.offset;
  spec.parameters.at(first + 2) = handle.generation;
}

/// Reads it back. Opening the result is checked as for any other handle.
inline ObjectHandle get_handle(const ObjectSpec& spec, std::size_t first) {
  return {.kind = static_cast<ObjectKind>(static_cast<std::uint16_t>(spec.parameters.at(first))),
          .slab = static_cast<std::uint32_t>(spec.parameters.at(first) >> 16U),
          .offset = spec.parameters.at(first + 1),
          .generation = spec.parameters.at(first + 2)};
}

}  // namespace drover::ipc
