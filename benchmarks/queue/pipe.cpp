// pipe(2), with the largest buffer that the system allows.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <climits>

#include "drover/base/error.hpp"
#include "queue/descriptors.hpp"
#include "queue/parts.hpp"

namespace drover::bench {
namespace {

// The limit for ordinary users (fs.pipe-max-size).
constexpr int kLargest = 1024 * 1024;

std::string refusal(const Cell& cell) {
  const bool is_shared = cell.producers > 1 || cell.consumers > 1;
  return is_shared && cell.bytes > PIPE_BUF ? "messages over 4 KiB of several writers get mixed up" : "";
}

Endpoint make(const Cell& cell, const Session&) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno("pipe2", "a lane for messages");
  Endpoint endpoint{.producer = Fd(ends[1]), .consumer = Fd(ends[0]), .name = {}, .keep = {}};
  ::fcntl(ends[1], F_SETPIPE_SZ, kLargest);  // stays smaller if the system refuses
  if (cell.metric == Metric::polled_hop) set_nonblocking(endpoint.consumer);
  return endpoint;
}

class PipeLane {
 public:
  static constexpr bool kIsRead = true;

  explicit PipeLane(LaneEnd end)
      : fd_(std::move(end.fd)), message_(arena(end.is_producer ? 0 : 1, end.order.cell.bytes)) {}

  [[nodiscard]] std::span<std::byte> draft() const noexcept { return message_; }
  void send() const { write_all(fd_, message_); }
  [[nodiscard]] std::span<const std::byte> receive() const {
    return read_all(fd_, message_) == ReadResult::filled ? message_ : std::span<std::byte>{};
  }
  [[nodiscard]] std::span<const std::byte> try_receive() const { return receive(); }
  void finish(bool) { fd_.reset(); }  // the last writer to do so ends the lane

 private:
  Fd fd_;
  std::span<std::byte> message_;
};

}  // namespace

Contender pipe_contender() {
  return {.name = "pipe", .refusal = refusal, .make = make, .play = play_lanes<PipeLane>};
}

}  // namespace drover::bench
