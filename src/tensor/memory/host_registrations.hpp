// tensor/memory/host_registrations.hpp: host memory that is registered with devices, once per process.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "drover/device/backend.hpp"

namespace drover::tensor {

/// Registers whole pages of host memory with the devices of a backend, while the result is held. Calls for the same
/// pages share one registration. Safe for all threads.
[[nodiscard]] std::shared_ptr<HostRegistration> register_once(Device& device, std::span<std::byte> memory);

}  // namespace drover::tensor
