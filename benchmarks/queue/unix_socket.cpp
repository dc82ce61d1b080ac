// Unix socket pairs: SOCK_SEQPACKET, which preserves message boundaries, and SOCK_STREAM, for one to one.
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "queue/descriptors.hpp"
#include "queue/parts.hpp"

namespace drover::bench {
namespace {

constexpr int kBuffer = 4 * 1024 * 1024;
// Larger packets need more contiguous kernel memory than is usually available.
constexpr std::uint64_t kLargestPacket = kMiB;

Endpoint make_pair(const Cell& cell, int kind) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, kind | SOCK_CLOEXEC, 0, ends.data()) != 0) throw_errno("socketpair", "messages");
  Endpoint endpoint{.producer = Fd(ends[0]), .consumer = Fd(ends[1]), .name = {}, .keep = {}};
  ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &kBuffer, sizeof(kBuffer));  // up to the limit of the system
  if (cell.metric == Metric::polled_hop) set_nonblocking(endpoint.consumer);
  return endpoint;
}

Endpoint make_packets(const Cell& cell, const Session&) { return make_pair(cell, SOCK_SEQPACKET); }
Endpoint make_stream(const Cell& cell, const Session&) { return make_pair(cell, SOCK_STREAM); }

std::string refusal_of_packets(const Cell& cell) {
  int buffer = 0;
  socklen_t length = sizeof(buffer);
  const Endpoint probe = make_pair(cell, SOCK_SEQPACKET);
  ::getsockopt(probe.producer.get(), SOL_SOCKET, SO_SNDBUF, &buffer, &length);
  const bool fits = cell.bytes <= kLargestPacket && 2 * cell.bytes <= static_cast<std::uint64_t>(buffer);
  return fits ? "" : "larger than the limit of packets (net.core.wmem_max)";
}

std::string refusal_of_stream(const Cell& cell) {
  const bool is_shared = cell.producers > 1 || cell.consumers > 1;
  return is_shared ? "a stream mixes the messages of several producers" : "";
}

class StreamLane {
 public:
  static constexpr bool kIsRead = true;

  explicit StreamLane(LaneEnd end)
      : fd_(std::move(end.fd)), message_(arena(end.is_producer ? 0 : 1, end.order.cell.bytes)) {}

  [[nodiscard]] std::span<std::byte> draft() const noexcept { return message_; }
  void send() const { write_all(fd_, message_); }
  [[nodiscard]] std::span<const std::byte> receive() const {
    return read_all(fd_, message_) == ReadResult::filled ? message_ : std::span<std::byte>{};
  }
  [[nodiscard]] std::span<const std::byte> try_receive() const { return receive(); }
  void finish(bool) { fd_.reset(); }  // the last producer to do so ends the lane

 protected:
  // NOLINTBEGIN(readability-identifier-naming): as private ones, for the two kinds of socket
  Fd fd_;
  std::span<std::byte> message_;
  // NOLINTEND(readability-identifier-naming)
};

class PacketLane : public StreamLane {
 public:
  using StreamLane::StreamLane;

  [[nodiscard]] std::span<const std::byte> receive() const {
    const auto length = ::recv(fd_.get(), message_.data(), message_.size(), 0);
    if (length < 0 && errno != EAGAIN) throw_errno("recv", "a message");
    return length <= 0 ? std::span<std::byte>{} : message_.first(static_cast<std::size_t>(length));
  }
  [[nodiscard]] std::span<const std::byte> try_receive() const { return receive(); }
};

}  // namespace

Contender unix_packets() {
  return {.name = "unix socket, packets",
          .refusal = refusal_of_packets,
          .make = make_packets,
          .play = play_lanes<PacketLane>};
}

Contender unix_stream() {
  return {.name = "unix socket, stream",
          .refusal = refusal_of_stream,
          .make = make_stream,
          .play = play_lanes<StreamLane>};
}

}  // namespace drover::bench
