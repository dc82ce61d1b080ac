// device/host/foreign.hpp: finds emulated memory by address and by handle.
#pragma once

#include "device/host/backend.hpp"
#include "drover/base/fd.hpp"
#include "drover/device/memory.hpp"

namespace drover::device::host {

/// Describes an address; see Device::describe.
[[nodiscard]] PointerInfo describe_pointer(const HostBackend& backend, DevicePtr ptr);

/// Duplicates the descriptor of the memory file behind live device memory at `base`.
[[nodiscard]] Fd duplicate_file(const HostBackend& backend, DevicePtr base);

/// A handle for the allocation at `base`: the process, and the descriptor of the file there. Like CUDA's handles, it
/// is valid only while the process has the allocation.
[[nodiscard]] IpcHandle make_handle(const HostBackend& backend, DevicePtr base);

/// Opens the file of an allocation of another process, on `device`, with at least `bytes`. Trusts nothing: throws
/// `Errc::corrupt` if the handle is malformed or names no live allocation, and `Errc::invalid_argument` if this
/// process made it.
[[nodiscard]] Fd open_handle(const IpcHandle& handle, int device, std::size_t bytes);

}  // namespace drover::device::host
