// process/spawn/remote_status.hpp: the end of a child whose parent is a template, as that tells it.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>

/// What goes through the socket of one child, a SOCK_SEQPACKET pair: begins as `started` (by the child itself, with
/// its pidfd) or `refused` (by the template, with a text behind the byte), then `ended` (by the template). The
/// template leaves the child unreaped, so that its id stays its own, until it is told `reap` or our end is closed;
/// then it closes its own.
namespace drover::remote_status {

inline constexpr char kStarted = 'K';  ///< StartedMessage
inline constexpr char kRefused = 'N';  ///< followed by why
inline constexpr char kEnded = 'E';    ///< EndedMessage
inline constexpr char kReap = 'R';     ///< nothing more

/// From the child, once everything it was given is in force.
struct StartedMessage {
  char kind = kStarted;
  std::int32_t pid = 0;
};

/// As waitid says it.
struct EndedMessage {
  char kind = kEnded;
  std::int32_t code = 0;    ///< CLD_EXITED, CLD_KILLED or CLD_DUMPED
  std::int32_t status = 0;  ///< the exit status or the signal
};

/// Takes `ended` from the socket of a child that has ended, and fills in `info`. False if there is none because the
/// template died, or does nothing for several seconds.
[[nodiscard]] bool receive(int socket, siginfo_t& info) noexcept;

/// Lets the template reap the child, and returns when it has, or cannot.
void let_reap(int socket) noexcept;

}  // namespace drover::remote_status
