// process/spawn/write_now.hpp: writing to a descriptor that others share, without ever waiting for its reader.
#pragma once

#include <sys/types.h>

#include <string_view>

#include "drover/base/log.hpp"

namespace drover {

/// As write, without waiting where the kind of file allows that: -1 and EAGAIN where there is no room. Leaves the
/// flags of the open file alone, since others share them. The calling thread must block or ignore SIGPIPE.
[[nodiscard]] ssize_t write_now(int fd, std::string_view bytes) noexcept;

/// A log sink as `log_to_stderr`, for who must not wait: a line that standard error does not take at once is lost.
void log_without_waiting(LogLevel level, std::string_view text) noexcept;

}  // namespace drover
