// process/spawn/standard_streams.hpp: descriptors 0, 1 and 2, which a program may have closed.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "drover/base/fd.hpp"

namespace drover::process {

/// Whether descriptor `number` (0, 1 or 2) is a standard stream. If the program has closed that, the number may
/// belong to another file, which is closed on exec.
[[nodiscard]] inline bool is_standard_stream(int number) noexcept {
  const int flags = ::fcntl(number, F_GETFD);
  return flags >= 0 && (flags & FD_CLOEXEC) == 0;
}

/// Opens /dev/null for each standard stream that is closed, so that no other file gets its number.
inline void fill_standard_streams() noexcept {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (::fcntl(number, F_GETFD) < 0) ::open("/dev/null", O_RDWR);  // NOLINT(android-cloexec-open): inherited
  }
}

/// Moves a descriptor above the standard streams, so that output of a program that has closed those does not go
/// there. Returns it unchanged if no other number is free.
[[nodiscard]] inline Fd above_standard_streams(Fd fd) noexcept {
  if (!fd.is_open() || fd.get() > STDERR_FILENO) return fd;
  Fd lifted(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  return lifted.is_open() ? std::move(lifted) : std::move(fd);
}

}  // namespace drover::process
