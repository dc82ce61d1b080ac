// device/foreign.hpp: checks and errors for foreign memory that both backends share.
#pragma once

#include <source_location>

#include "drover/base/error.hpp"
#include "drover/device/memory.hpp"

namespace drover::device {

/// Throws unless `ptr`, which `info` describes, can have an IPC handle: `Errc::invalid_argument` if no device memory
/// begins there, `Errc::unsupported` if this kind of memory has no handles.
void require_ipc(const PointerInfo& info, DevicePtr ptr,
                 std::source_location where = std::source_location::current());

/// Throws the same codes unless the memory at `ptr` can be retained as a slab.
void require_retainable(const PointerInfo& info, DevicePtr ptr,
                        std::source_location where = std::source_location::current());

/// The error for an IPC handle that names no allocation: `Errc::corrupt`.
[[nodiscard]] Error no_such_allocation(const std::string& reason,
                                       std::source_location where = std::source_location::current());

/// The error for an IPC handle of this process's own memory, which the driver does not open:
/// `Errc::invalid_argument`.
[[nodiscard]] Error own_allocation(std::source_location where = std::source_location::current());

}  // namespace drover::device
