// process/spawn/remote_status.hpp: how a template reports the end of a child to the application.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>

/// The messages on the socket of one child, a SOCK_SEQPACKET pair. First `started` (from the child, with its pidfd)
/// or `refused` (from the template, followed by a text), then `ended` (from the template). The template leaves the
/// child unreaped, so that its id is not reused, until it receives `reap` or the application closes its end; then it
/// closes its own.
namespace drover::process::remote_status {

inline constexpr char kStarted = 'K';  ///< StartedMessage
inline constexpr char kRefused = 'N';  ///< followed by the reason
inline constexpr char kEnded = 'E';    ///< EndedMessage
inline constexpr char kReap = 'R';     ///< a single byte

/// From the child, once its options are in force.
struct StartedMessage {
  char kind = kStarted;
  std::int32_t pid = 0;
};

/// As reported by waitid.
struct EndedMessage {
  char kind = kEnded;
  std::int32_t code = 0;    ///< CLD_EXITED, CLD_KILLED or CLD_DUMPED
  std::int32_t status = 0;  ///< the exit status or the signal
};

/// Receives `ended` from the socket of a child that has ended, and fills in `info`. False if none comes: the template
/// died, or did not answer for several seconds.
[[nodiscard]] bool receive(int socket, siginfo_t& info) noexcept;

/// Asks the template to reap the child; returns once it has or cannot.
void let_reap(int socket) noexcept;

}  // namespace drover::process::remote_status
