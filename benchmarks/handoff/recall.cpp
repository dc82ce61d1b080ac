// drover: a tensor that the session keeps under a name, recalled by a process that has not mapped it.
#include <span>
#include <stdexcept>

#include "drover/tensor/send.hpp"
#include "handoff/workload.hpp"
#include "support/board.hpp"

namespace drover::bench {
namespace {

constexpr const char* kName = "handoff";

}  // namespace

void measure_recall(const Step& step, std::vector<Row>& rows) {
  const auto& [session, lane, place, bytes, is_smoke] = step;
  std::vector<double> recalls;
  for (std::uint64_t number = 1; number <= (is_smoke ? 1U : 20U); ++number) {
    const Memory memory(session);
    const auto count = static_cast<std::int64_t>(bytes / sizeof(std::uint64_t));
    const Tensor tensor = empty(memory, DType::uint64, {count}, place);
    tensor.slice(0, -1).fill(number);
    keep(kName, tensor);
    if (lane.to.put(std::as_bytes(std::span(&kRecallFollows, 1))) != PutResult::put)
      throw std::runtime_error("not put");
    const Answer answer = await(lane.back);
    if (answer.last != number) throw std::runtime_error("the reader read a wrong number");
    recalls.push_back(static_cast<double>(answer.usable_at - answer.begun_at));
  }
  Session(session).drop(kName);
  rows.push_back(nanosecond_row(workload_name(place, bytes), "drover, a tensor", "recall", recalls));
}

// With a new Memory each time, so that nothing is mapped.
Answer recall_tensor(const Session& session) {
  const Memory memory(session);
  Answer answer;
  answer.begun_at = now_ns();
  const Tensor tensor = recall(memory, kName);
  answer.usable_at = now_ns();
  answer.last = tensor.select(0, -1).item<std::uint64_t>();
  answer.read_at = now_ns();
  return answer;
}

}  // namespace drover::bench
