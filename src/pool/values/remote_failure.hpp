// pool/values/remote_failure.hpp: exceptions of tasks on their way.
#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <string>

#include "drover/pool/codec.hpp"

namespace drover {

/// By a worker, within a handler: writes the exception that is being handled. Returns whether the worker cannot go on
/// after it, its device being unusable.
bool write_failure(Encoder& to, const std::string& stack);

/// By the application: that exception, of its type where that is known here.
[[nodiscard]] std::exception_ptr read_failure(std::span<const std::byte> bytes, const std::string& task,
                                              const std::string& worker);

}  // namespace drover
