// process/inspect/pidfd.hpp: pidfds, which name processes exactly. The declarations of the C library are missing on
// some of the systems we support.
#pragma once

#include <poll.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>

#include "drover/base/clock.hpp"

namespace drover::process {

/// Opens a process by its id, closed on exec; -1 and errno on failure. Readable once the process has ended.
inline int pidfd_open(pid_t pid) noexcept { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

/// Sends a signal to exactly this process; -1 and errno on failure.
inline int pidfd_send_signal(int pidfd, int signal) noexcept {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}

/// Waits until the process has ended; false if the deadline passes first.
[[nodiscard]] inline bool pidfd_wait(int pidfd, Deadline deadline) noexcept {
  pollfd ended{.fd = pidfd, .events = POLLIN, .revents = 0};
  while (::poll(&ended, 1, deadline.poll_timeout()) <= 0) {
    if (deadline.has_passed()) return false;
  }
  return true;
}

/// Whether the process has ended. Does not block.
[[nodiscard]] inline bool pidfd_has_ended(int pidfd) noexcept {
  return pidfd_wait(pidfd, Deadline::after(std::chrono::nanoseconds(0)));
}

}  // namespace drover::process
