// drover: a lease of a few words goes with a message, whatever the size of the memory.
#include <span>
#include <stdexcept>

#include "handoff/workload.hpp"
#include "support/board.hpp"

namespace drover::bench {
namespace {

struct Sample {
  double hand_over;  // nanoseconds until the reader could use it
  double read;       // and until it had read the last number
};

Sample hand_over(Lane& lane, const Block& block, std::uint64_t bytes, std::uint64_t number) {
  write_last(block, bytes, number);
  const std::int64_t begin = now_ns();
  std::vector<Lease> leases;
  leases.push_back(block.share());
  if (lane.to.put(std::as_bytes(std::span(&bytes, 1)), leases) != PutResult::put) throw std::runtime_error("not put");
  const Answer answer = await(lane.back);
  if (answer.last != number) throw std::runtime_error("the reader read a wrong number");
  return {static_cast<double>(answer.usable_at - begin), static_cast<double>(answer.read_at - answer.usable_at)};
}

}  // namespace

void measure_leases(const Step& step, std::vector<Row>& rows) {
  const auto& [session, lane, place, bytes, is_smoke] = step;
  std::vector<double> first;
  std::vector<double> warm;
  std::vector<double> read;
  std::uint64_t number = 0;
  for (int slab = 0; slab < (is_smoke ? 1 : 5); ++slab) {
    Memory memory(session);
    const Block block = memory.allocate(place, bytes);
    first.push_back(hand_over(lane, block, bytes, ++number).hand_over);
    for (int round = 0; round < (is_smoke ? 2 : 200); ++round) {
      const Sample sample = hand_over(lane, block, bytes, ++number);
      warm.push_back(sample.hand_over);
      read.push_back(sample.read);
    }
  }
  const std::string name = workload_name(place, bytes);
  rows.push_back(nanosecond_row(name, "drover", "hand over", warm));
  rows.push_back(nanosecond_row(name, "drover", "first hand over of a slab", first));
  rows.push_back(nanosecond_row(name, "drover", "read the last number", read));
}

}  // namespace drover::bench
