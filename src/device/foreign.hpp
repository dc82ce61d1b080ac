// device/foreign.hpp: what both backends refuse in the same words.
#pragma once

#include <source_location>

#include "drover/base/error.hpp"
#include "drover/device/foreign.hpp"

namespace drover {

/// Throws unless an IPC handle can be had for `ptr`, of which `info` is known: `Errc::invalid_argument` if it is no
/// begin of device memory, `Errc::unsupported` if its kind has no handles.
void require_ipc(const PointerInfo& info, DevicePtr ptr,
                 std::source_location where = std::source_location::current());

/// Throws unless the memory at `ptr` can be retained as a slab, with the same codes.
void require_retainable(const PointerInfo& info, DevicePtr ptr,
                        std::source_location where = std::source_location::current());

/// The error for an IPC handle that names nothing: `Errc::corrupt`.
[[nodiscard]] Error no_such_allocation(const std::string& reason,
                                       std::source_location where = std::source_location::current());

/// The error for an IPC handle of this process's own memory, which no driver opens: `Errc::invalid_argument`.
[[nodiscard]] Error own_allocation(std::source_location where = std::source_location::current());

}  // namespace drover
