// tensor/memory/host_registrations.hpp: host memory that devices know, once per process.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "drover/device/backend.hpp"

namespace drover {

/// Makes whole pages of host memory known to the devices of a backend, as long as anybody in this process holds what
/// is returned; whoever asks for the same pages shares it. Safe for all threads.
[[nodiscard]] std::shared_ptr<HostRegistration> register_once(Device& device, std::span<std::byte> memory);

}  // namespace drover
