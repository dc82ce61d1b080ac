// Sums of four tensors by four processes, which put them into a queue; the tensors stay on their device.
#include <algorithm>
#include <exception>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drover/drover.hpp"

namespace {

using namespace drover;

// A worker opens queues by their handles, which it receives as arguments.
const auto add_up = entry("add_up", [](Worker& worker) {
  const Memory memory(worker.session());
  Queue tensors(worker.session(), ObjectHandle::parse(worker.arguments().at(0)));
  Queue results(worker.session(), ObjectHandle::parse(worker.arguments().at(1)));
  Tensor tensor;
  if (get(tensors, memory, tensor) == GetResult::got)
    static_cast<void>(results.put(fmt::format("{:.0f}", sum(tensor))));
});

int run() {
  const Session session = Session::start();
  const Memory memory(session);
  Queue tensors(session);
  Queue results(session);
  const std::vector<std::string> handles{tensors.handle().to_string(), results.handle().to_string()};
  auto workers = start_all(session, std::vector(4, ProcessOptions{.entry = add_up, .arguments = handles}));
  const Place device = Place::device(select_backend().backend.kind(), 0);
  for (std::int64_t i = 0; i < 4; ++i)
    static_cast<void>(put(tensors, arange(memory, DType::int64, i, i + 1'000'000, device)));
  std::vector<std::string> sums;
  for (Message sum; sums.size() < workers.size() && results.get(sum) == GetResult::got;)
    sums.emplace_back(sum.text());
  for (auto& worker : workers) static_cast<void>(worker.wait(Deadline::never()));
  std::ranges::sort(sums);
  fmt::print("[{}]\n", fmt::join(sums, ", "));
  return sums == std::vector<std::string>{"499999500000", "500000500000", "500001500000", "500002500000"} ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    init(argc, argv);  // a worker does its work here and never returns
    return run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
