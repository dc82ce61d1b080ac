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
  std::string bytes;    ///< as sent, whole
  std::vector<Fd> fds;  ///< now owned here, closed on exec
};

/// How a send with a deadline ended.
enum class [[nodiscard]] SendResult {
  sent,       ///< the message is on its way, whole
  timed_out,  ///< the other end had too much unread until the deadline passed; nothing was sent
  peer_lost,  ///< the other end is closed or its process is dead; nothing was sent
};

/// How a receive ended.
enum class [[nodiscard]] ReceiveResult {
  message,    ///< one message was stored
  timed_out,  ///< the deadline passed first
  peer_lost,  ///< the other end is closed or its process is dead, and nothing is left to read
};

/// One end of a local socket that keeps messages apart and carries file descriptors (SOCK_SEQPACKET,
/// SCM_RIGHTS). For control, not for bulk data: large things travel as descriptors. Move-only. One thread at a
/// time may send and one receive.
class Channel {
 public:
  /// Most bytes and most descriptors of one message.
  static constexpr std::size_t kMaxBytes = 64 * std::size_t{1024};
  static constexpr std::size_t kMaxFds = 253;  ///< the kernel's own limit

  /// Two connected ends, closed on exec; hand one to a child through SpawnOptions::inherit.
  [[nodiscard]] static std::pair<Channel, Channel> make_pair();
  /// Takes over a connected SOCK_SEQPACKET socket.
  explicit Channel(Fd socket) noexcept : socket_(std::move(socket)) {}

  /// Sends one message; blocks while the other end has too much unread. The descriptors stay the caller's.
  /// Throws `Errc::peer_lost` when the other end is gone, `Errc::invalid_argument` beyond the limits above.
  void send(std::string_view bytes, std::span<const int> fds = {});
  /// The same, but waits for room only until the deadline; one that has passed sends only what goes at once. Safe
  /// against a peer that never reads. Throws `Errc::invalid_argument` beyond the limits above.
  SendResult send(std::string_view bytes, std::span<const int> fds, Deadline deadline);
  /// Waits for one message. A message whose descriptors did not fit, because this process has too many open
  /// files, is `Errc::limit_reached`; its bytes are stored, the descriptors that did arrive are closed. Whatever else
  /// is thrown leaves the message where it is, and `into` empty.
  ReceiveResult receive(ChannelMessage& into, Deadline deadline);

  /// Readable when a message or the end has come; for poll, and for SpawnOptions::inherit.
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

 private:
  ssize_t send_once(std::string_view bytes, std::span<const int> fds, int flags);

  Fd socket_;
};

}  // namespace drover
