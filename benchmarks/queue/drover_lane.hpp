// benchmarks/queue/drover_lane.hpp: common code of the contenders that use drover's queue.
#pragma once

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>

#include "drover/base/bytes.hpp"
#include "drover/ipc/queue.hpp"
#include "queue/parts.hpp"

namespace drover::bench {

/// A queue as deep as the others', with room for its messages and for those being read and written.
[[nodiscard]] inline Endpoint make_drover_queue(const Cell& cell, const Session& session) {
  const auto messages = depth_of(cell) + cell.producers + cell.consumers;
  const QueueOptions options{.capacity = depth_of(cell),
                             .bytes = std::max(16 * kMiB, messages * (cell.bytes + kKiB))};
  auto queue = std::make_shared<Queue>(session, options);
  auto name = queue->handle().to_string();
  return {.producer = {}, .consumer = {}, .name = std::move(name), .keep = std::move(queue)};
}

/// One end, without sending.
class DroverLane {
 public:
  explicit DroverLane(const LaneEnd& end) : queue_(end.post.session(), ObjectHandle::parse(end.name)) {}

  [[nodiscard]] std::span<const std::byte> receive() {
    switch (queue_.get(message_)) {
      case GetResult::got: return message_.bytes();
      case GetResult::closed: return {};
      default: throw std::runtime_error("a get ended without a message");
    }
  }
  [[nodiscard]] std::span<const std::byte> try_receive() {
    return queue_.try_get(message_) == GetResult::got ? message_.bytes() : std::span<const std::byte>{};
  }
  void finish(bool is_first) {
    if (is_first) queue_.close();
  }

 protected:
  Queue queue_;  // NOLINT(readability-identifier-naming): as a private one, for the lane of loans

 private:
  Message message_;
};

}  // namespace drover::bench
