// drover as users call it: puts a tensor in a queue right after submitting work on it.
#include <stdexcept>

#include "drover/tensor/send.hpp"
#include "handoff/workload.hpp"
#include "support/board.hpp"

namespace drover::bench {
namespace {

struct Sample {
  double hand_over;  // nanoseconds until the reader had the tensor
  double read;       // then until it had read the last number, which the submitted work writes
};

// The stream writes the number, and nobody waits for it here.
Sample hand_over(Lane& lane, const Tensor& tensor, const Tensor& number) {
  tensor.slice(0, -1).copy_from(number);
  const std::int64_t begin = now_ns();
  if (put(lane.to, tensor) != PutResult::put) throw std::runtime_error("not put");
  const Answer answer = await(lane.back);
  if (answer.last != number.item<std::uint64_t>()) throw std::runtime_error("the reader read a wrong number");
  return {static_cast<double>(answer.usable_at - begin), static_cast<double>(answer.read_at - answer.usable_at)};
}

}  // namespace

void measure_tensors(const Step& step, std::vector<Row>& rows) {
  const auto& [session, lane, place, bytes, is_smoke] = step;
  std::vector<double> first;
  std::vector<double> warm;
  std::vector<double> read;
  std::uint64_t count = 0;
  for (int slab = 0; slab < (is_smoke ? 1 : 5); ++slab) {
    const Memory memory(session);
    const Tensor tensor =
        empty(memory, DType::uint64, {static_cast<std::int64_t>(bytes / sizeof(std::uint64_t))}, place);
    for (int round = 0; round < (is_smoke ? 3 : 200); ++round) {
      const Sample sample = hand_over(lane, tensor, full(memory, DType::uint64, {1}, ++count));
      (round == 0 ? first : warm).push_back(sample.hand_over);
      read.push_back(sample.read);
    }
  }
  const std::string name = workload_name(place, bytes);
  rows.push_back(nanosecond_row(name, "drover, a tensor", "hand over", warm));
  rows.push_back(nanosecond_row(name, "drover, a tensor", "first hand over of a slab", first));
  rows.push_back(nanosecond_row(name, "drover, a tensor", "read the last number", read));
}

Answer use_tensor(const Memory& memory, Message& message) {
  auto leases = message.take_leases();
  const Tensor tensor = unpack_all(memory, message.bytes(), leases).front();
  Answer answer;
  answer.usable_at = now_ns();
  answer.last = tensor.select(0, -1).item<std::uint64_t>();
  answer.read_at = now_ns();
  return answer;
}

}  // namespace drover::bench
