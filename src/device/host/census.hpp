// device/host/census.hpp: how much shareable memory of an emulated device is in use on this machine.
#pragma once

#include <cstdint>
#include <string>

#include "drover/base/fd.hpp"
#include "drover/device/uuid.hpp"

namespace drover::host {

/// The label of a slab's memory file; it names the device, so that the census can tell whose memory it is.
[[nodiscard]] std::string slab_label(const Uuid& device);

/// Whether `file` is a slab of `device`.
[[nodiscard]] bool is_slab_of(const Fd& file, const Uuid& device);

/// Bytes of all slabs of `device` that any process of this user has open, each counted once. Read from /proc,
/// so it needs no bookkeeping that a killed process could leave wrong; costs about a millisecond. Slabs in
/// processes that this user may not look into are not seen.
[[nodiscard]] std::uint64_t slab_bytes_in_use(const Uuid& device);

}  // namespace drover::host
