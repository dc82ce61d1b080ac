// session/wire/connection.hpp: the keeper's end of a connection, which never blocks.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "drover/base/fd.hpp"

namespace drover::session {

/// The sender of a message or the peer of a socket, as reported by the kernel.
struct Credentials {
  pid_t pid = 0;  ///< 0 if it is in a pid namespace that is not visible here
  uid_t uid = 0;  ///< real for a sender, effective for a peer
};

/// A received message and its metadata.
struct IncomingMessage {
  std::string bytes;                       ///< cut if longer than any message of the protocol
  std::optional<Credentials> credentials;  ///< of the sender
  std::vector<Fd> fds;                     ///< descriptors that came with it
  bool is_cut = false;                     ///< whether it was cut
  bool has_lost_fds = false;               ///< some descriptors were dropped: too many open files
};

/// The result of a non-blocking receive.
enum class [[nodiscard]] IncomingResult {
  message,  ///< a message was stored
  nothing,  ///< none is pending
  closed,   ///< the other end is closed
};

/// The keeper's end of a control connection. Move-only.
class Connection {
 public:
  /// Takes over a connected socket and enables credentials for each message.
  explicit Connection(Fd socket);
  /// Creates a connection and the socket of its peer. Throws `Errc::limit_reached` if too many files are open.
  [[nodiscard]] static std::pair<Connection, Fd> make_pair();

  /// Receives the next message if one is pending.
  IncomingResult receive(IncomingMessage& into);
  /// Sends a message with up to two descriptors; leaves out those that are -1. Returns 0 or an error number: EAGAIN
  /// if the peer does not read, EPIPE if it has gone.
  [[nodiscard]] int send(const std::string& bytes, std::initializer_list<int> fds = {}) noexcept;
  /// Whether the peer has closed its end, even if messages are pending.
  [[nodiscard]] bool is_hung_up() const noexcept;
  /// The descriptor, for polling.
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

 private:
  Fd socket_;
};

/// Makes the kernel attach the sender's credentials to each message of this socket.
void name_senders(const Fd& socket);

/// The peer of a socket: the process that created the pair, or the one that listened or connected.
[[nodiscard]] Credentials peer_credentials(const Fd& socket);

/// Whether the peer of a socket has closed its end.
[[nodiscard]] bool is_hung_up(int socket) noexcept;

}  // namespace drover::session
