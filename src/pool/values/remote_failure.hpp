// pool/values/remote_failure.hpp: sends exceptions of tasks to the application.
#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <string>

#include "drover/pool/codec.hpp"

namespace drover::pool {

/// Called by a worker in a handler: writes the current exception. Returns whether it made the device of the worker
/// unusable, so that the worker cannot continue.
bool write_failure(Encoder& to, const std::string& stack);

/// Called by the application: that exception, with its own type if the type is registered.
[[nodiscard]] std::exception_ptr read_failure(std::span<const std::byte> bytes, const std::string& task,
                                              const std::string& worker);

}  // namespace drover::pool
