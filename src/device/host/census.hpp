// device/host/census.hpp: counts the slabs of an emulated device in use on this machine.
#pragma once

#include <cstdint>
#include <string>

#include "drover/base/fd.hpp"
#include "drover/device/info.hpp"

namespace drover::device::host {

/// The label of the memory file of a slab; it names the device, so that the census can attribute the memory.
[[nodiscard]] std::string slab_label(const Uuid& device);

/// Whether `file` is a slab of `device`.
[[nodiscard]] bool is_slab_of(const Fd& file, const Uuid& device);

/// Bytes of all slabs of `device` that processes of this machine have open, each counted once. Read from /proc, so
/// that a killed process cannot leave a wrong count behind; costs about a millisecond. Slabs of processes that this
/// user may not inspect are not counted.
[[nodiscard]] std::uint64_t slab_bytes_in_use(const Uuid& device);

}  // namespace drover::device::host
