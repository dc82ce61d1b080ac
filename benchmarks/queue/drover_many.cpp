// drover's queue with several messages at a time: put_many, get_many.
#include <vector>

#include "queue/drover_lane.hpp"

namespace drover::bench {
namespace {

class ManyLane : public DroverLane {
 public:
  static constexpr bool kIsRead = true;
  static constexpr std::ptrdiff_t kAtATime = 32;

  explicit ManyLane(const LaneEnd& end) : DroverLane(end) {
    if (!end.is_producer) return;
    const std::size_t bytes = end.order.cell.bytes;
    for (auto rest = arena(0, kAtATime * bytes); !rest.empty(); rest = rest.subspan(bytes)) {
      drafts_.push_back(rest.first(bytes));
    }
  }

  [[nodiscard]] std::span<std::byte> draft() const noexcept { return drafts_[static_cast<std::size_t>(written_)]; }
  void send() {
    if (++written_ == kAtATime) flush();
  }
  void flush() {
    const std::vector<std::span<const std::byte>> messages(drafts_.begin(), drafts_.begin() + written_);
    std::size_t count = 0;
    if (!messages.empty() && queue_.put_many(messages, count) != PutResult::put) {
      throw std::runtime_error("messages were not put");
    }
    written_ = 0;
  }
  [[nodiscard]] std::span<const std::byte> receive() {
    if (next_ == received_.size()) {
      next_ = 0;
      if (queue_.get_many(received_, kAtATime) != GetResult::got) received_.clear();
    }
    return received_.empty() ? std::span<const std::byte>{} : received_[next_++].bytes();
  }

 private:
  std::vector<std::span<std::byte>> drafts_;
  std::ptrdiff_t written_ = 0;
  std::vector<Message> received_;
  std::size_t next_ = 0;
};

std::string refusal(const Cell& cell) {
  return cell.metric == Metric::messages && cell.bytes <= 4 * kKiB ? "" : "for many small messages";
}

}  // namespace

Contender drover_many() {
  return {.name = "drover many", .refusal = refusal, .make = make_drover_queue, .play = play_lanes<ManyLane>};
}

}  // namespace drover::bench
