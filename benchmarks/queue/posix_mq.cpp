// POSIX message queues: mq_open(3).
#include <mqueue.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "queue/descriptors.hpp"
#include "queue/parts.hpp"

namespace drover::bench {
namespace {

// Ordinary users have 800 KiB for all their queues.
void lift_limit() {
  const rlimit all{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
  ::setrlimit(RLIMIT_MSGQUEUE, &all);
}

// An empty Fd if the system refuses it. On Linux a queue is a descriptor, so its name can be removed at once.
Fd try_open(const Cell& cell, std::uint64_t depth) {
  static std::uint64_t serial = 0;
  const auto name = fmt::format("/drover-bench-{}-{}", ::getpid(), ++serial);
  mq_attr attributes{};
  attributes.mq_maxmsg = static_cast<long>(depth);
  attributes.mq_msgsize = static_cast<long>(cell.bytes);
  const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | (cell.metric == Metric::polled_hop ? O_NONBLOCK : 0);
  Fd queue(::mq_open(name.c_str(), flags, 0600, &attributes));
  if (queue.is_open()) ::mq_unlink(name.c_str());
  return queue;
}

std::string refusal(const Cell& cell) {
  lift_limit();
  return try_open(cell, 1).is_open() ? "" : "larger than the system allows (fs.mqueue.msgsize_max)";
}

Endpoint make(const Cell& cell, const Session&) {
  for (std::uint64_t depth = depth_of(cell); depth > 0; depth /= 2) {
    Fd queue = try_open(cell, depth);
    if (!queue.is_open()) continue;
    Fd second = queue.duplicate();
    return {.producer = std::move(queue), .consumer = std::move(second), .name = {}, .keep = {}};
  }
  throw_errno("mq_open", "a queue that was allowed before");
}

class MqLane {
 public:
  static constexpr bool kIsRead = true;

  explicit MqLane(LaneEnd end)
      : fd_(std::move(end.fd)),
        message_(arena(end.is_producer ? 0 : 1, end.order.cell.bytes)),
        consumers_(end.order.cell.consumers) {}

  [[nodiscard]] std::span<std::byte> draft() const noexcept { return message_; }
  void send() const {
    if (::mq_send(fd_.get(), bytes(), message_.size(), 0) != 0) throw_errno("mq_send", "a message");
  }
  [[nodiscard]] std::span<const std::byte> receive() const {
    const auto length = ::mq_receive(fd_.get(), bytes(), message_.size(), nullptr);
    if (length < 0 && errno != EAGAIN) throw_errno("mq_receive", "a message");
    return length < 0 ? std::span<std::byte>{} : message_.first(static_cast<std::size_t>(length));
  }
  [[nodiscard]] std::span<const std::byte> try_receive() const { return receive(); }
  void finish(bool is_first) const {
    for (std::uint32_t i = 0; is_first && i < consumers_; ++i) send_word(*this, kEnd);
  }

 private:
  [[nodiscard]] char* bytes() const noexcept { return reinterpret_cast<char*>(message_.data()); }

  Fd fd_;
  std::span<std::byte> message_;
  std::uint32_t consumers_;
};

}  // namespace

Contender posix_mq() { return {.name = "posix mq", .refusal = refusal, .make = make, .play = play_lanes<MqLane>}; }

}  // namespace drover::bench
