// drover/ipc/channel.hpp: messages and file descriptors between two processes.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"

namespace drover {

/// One message with the descriptors that came with it.
struct ChannelMessage {
  std::string bytes;    ///< the whole message
  std::vector<Fd> fds;  ///< owned here, closed on exec
};

/// How a send with a deadline ended.
enum class [[nodiscard]] SendResult {
  sent,       ///< the whole message is in flight
  timed_out,  ///< the other end's buffer was full until the deadline; nothing was sent
  peer_lost,  ///< the other end is closed or its process is dead; nothing was sent
};

/// How a receive ended.
enum class [[nodiscard]] ReceiveResult {
  message,    ///< one message was stored
  timed_out,  ///< the deadline passed first
  peer_lost,  ///< the other end is closed or its process is dead, and all its messages were read
};

/// One end of a local socket that preserves message boundaries and carries file descriptors (SOCK_SEQPACKET,
/// SCM_RIGHTS). For control, not for bulk data: send large data as descriptors. Move-only. One thread may send while
/// another receives.
class Channel {
 public:
  /// Most bytes and most descriptors of one message.
  static constexpr std::size_t kMaxBytes = 64 * std::size_t{1024};
  static constexpr std::size_t kMaxFds = 253;  ///< the kernel's own limit

  /// Two connected ends, closed on exec; pass one to a child through SpawnOptions::inherit.
  [[nodiscard]] static std::pair<Channel, Channel> make_pair();
  /// Takes over a connected SOCK_SEQPACKET socket.
  explicit Channel(Fd socket) noexcept : socket_(std::move(socket)) {}

  /// Sends one message; blocks while the other end's buffer is full. The descriptors stay the caller's. Throws
  /// `Errc::peer_lost` if the other end is gone, `Errc::invalid_argument` beyond the limits above.
  void send(std::string_view bytes, std::span<const int> fds = {});
  /// The same, but waits for room only until the deadline; non-blocking if that has passed. Safe against a peer that
  /// never reads. Throws `Errc::invalid_argument` beyond the limits above.
  SendResult send(std::string_view bytes, std::span<const int> fds, Deadline deadline);
  /// Waits for one message. Throws `Errc::limit_reached` if this process has too many open files for its descriptors;
  /// the bytes are stored then, and the received descriptors closed. Any other exception leaves the message unread
  /// and `into` empty.
  ReceiveResult receive(ChannelMessage& into, Deadline deadline);

  /// Readable when a message or the end has arrived; for poll, and for SpawnOptions::inherit.
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

 private:
  ssize_t send_once(std::string_view bytes, std::span<const int> fds, int flags);

  Fd socket_;
};

}  // namespace drover
