// drover's queue: put a complete message, get it.
#include "queue/drover_lane.hpp"

namespace drover::bench {
namespace {

class QueueLane : public DroverLane {
 public:
  static constexpr bool kIsRead = true;

  explicit QueueLane(const LaneEnd& end)
      : DroverLane(end), draft_(end.is_producer ? arena(0, end.order.cell.bytes) : std::span<std::byte>{}) {}

  [[nodiscard]] std::span<std::byte> draft() const noexcept { return draft_; }
  void send() {
    if (queue_.put(draft_) != PutResult::put) throw std::runtime_error("a message was not put");
  }

 private:
  std::span<std::byte> draft_;
};

std::string refusal(const Cell&) { return ""; }

}  // namespace

Contender drover_queue() {
  return {.name = "drover", .refusal = refusal, .make = make_drover_queue, .play = play_lanes<QueueLane>};
}

}  // namespace drover::bench
