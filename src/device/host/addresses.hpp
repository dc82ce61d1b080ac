// device/host/addresses.hpp: addresses of emulated devices are plain addresses of this process.
#pragma once

#include <cstddef>

#include "drover/base/error.hpp"
#include "drover/device/memory.hpp"

namespace drover::host {

/// Where the bytes are.
inline void* pointer(DevicePtr ptr) {
  return reinterpret_cast<void*>(ptr.address);  // NOLINT(performance-no-int-to-ptr): emulated addresses are ours
}

/// Throws `Errc::invalid_argument` where a copy would touch a null pointer, as a GPU's driver does.
inline void check_host(const void* host, std::size_t bytes) {
  require(bytes == 0 || host != nullptr, "a copy from or to a null pointer was asked for");
}

}  // namespace drover::host
