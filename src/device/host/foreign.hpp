// device/host/foreign.hpp: emulated memory by address and by handle.
#pragma once

#include "device/host/backend.hpp"
#include "drover/base/fd.hpp"
#include "drover/device/foreign.hpp"

namespace drover::host {

/// What the emulated devices know of an address.
[[nodiscard]] PointerInfo describe_pointer(const HostBackend& backend, DevicePtr ptr);

/// The memory file behind live device memory at `base`, once more.
[[nodiscard]] Fd duplicate_file(const HostBackend& backend, DevicePtr base);

/// Names the allocation at `base`: its process, and the descriptor of its file there. As with CUDA's handles, that is
/// good only while the process has the allocation.
[[nodiscard]] IpcHandle make_handle(const HostBackend& backend, DevicePtr base);

/// The file of the allocation that another process named, on `device`, with at least `bytes`. Trusts nothing: throws
/// `Errc::corrupt` for what is no such handle, or none any more, and `Errc::invalid_argument` for one of this
/// process.
[[nodiscard]] Fd open_handle(const IpcHandle& handle, int device, std::size_t bytes);

}  // namespace drover::host
