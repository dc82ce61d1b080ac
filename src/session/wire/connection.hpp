// session/wire/connection.hpp: the keeper's end of a connection; it never waits for the other.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "drover/base/fd.hpp"

namespace drover {

/// Who sent a message, or is at the other end, as the kernel says.
struct Credentials {
  pid_t pid = 0;  ///< 0 if it is in a pid namespace that this process does not see
  uid_t uid = 0;  ///< real for a sender, effective for a peer
};

/// One message with all the kernel says of it.
struct IncomingMessage {
  std::string bytes;                       ///< cut, with is_cut, if it was longer than any message of ours
  std::optional<Credentials> credentials;  ///< of the sender
  std::vector<Fd> fds;                     ///< that came with it
  bool is_cut = false;                     ///< it was longer
  bool has_lost_fds = false;               ///< more descriptors were sent than this process could take
};

/// How a receive without waiting ended.
enum class [[nodiscard]] IncomingResult {
  message,  ///< one was stored
  nothing,  ///< none is there
  closed,   ///< the other end is closed
};

/// The keeper's end of a control connection. Move-only.
class Connection {
 public:
  /// Takes over a connected socket and asks the kernel to name the sender of each message.
  explicit Connection(Fd socket);
  /// Two connected ends: ours, and the other one to be handed out. Throws `Errc::limit_reached` when too many files
  /// are open.
  [[nodiscard]] static std::pair<Connection, Fd> make_pair();

  /// Takes the next message if there is one.
  IncomingResult receive(IncomingMessage& into);
  /// Sends a message and a descriptor, unless that is -1. Returns 0, or why it could not be sent: EAGAIN if the other
  /// end does not read, EPIPE if it is gone.
  [[nodiscard]] int send(const std::string& bytes, int fd = -1) noexcept;
  /// Whether the other end is closed, whatever is left to read.
  [[nodiscard]] bool is_hung_up() const noexcept;
  /// The descriptor, to be watched.
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

 private:
  Fd socket_;
};

/// Asks the kernel to name the sender of each message that comes to this socket.
void name_senders(const Fd& socket);

/// The process at the other end of a socket: of two connected ends the one that made them, else the one that listened
/// or connected.
[[nodiscard]] Credentials peer_credentials(const Fd& socket);

/// Whether the other end of a socket is closed.
[[nodiscard]] bool is_hung_up(int socket) noexcept;

}  // namespace drover
