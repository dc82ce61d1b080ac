// drover's queue without copies: a message is written where it will be read.
#include "queue/drover_lane.hpp"

namespace drover::bench {
namespace {

class LoanLane : public DroverLane {
 public:
  // Shows that the size of a loan costs nothing, so only the first word is read; Metric::whole reads all.
  static constexpr bool kIsRead = false;

  explicit LoanLane(const LaneEnd& end) : DroverLane(end), bytes_(end.order.cell.bytes) {}

  [[nodiscard]] std::span<std::byte> draft() {
    loan_ = queue_.loan(bytes_);
    return loan_.bytes().first(bytes_);
  }
  void send() {
    if (queue_.publish(loan_) != PutResult::put) throw std::runtime_error("a loan was not published");
  }

 private:
  std::size_t bytes_;
  Loan loan_;
};

std::string refusal(const Cell& cell) { return cell.bytes >= 1024 ? "" : "small messages are copied anyway"; }

}  // namespace

Contender drover_loan() {
  return {.name = "drover loan", .refusal = refusal, .make = make_drover_queue, .play = play_lanes<LoanLane>};
}

}  // namespace drover::bench
