// Four processes write to one tensor of the host, each to its own rows, and add to a total under a lock.
#include <exception>
#include <vector>

#include <fmt/format.h>

#include "drover/drover.hpp"

namespace {

using namespace drover;

// Writes where every process of the session reads. Arguments: the number to write, a queue and a lock.
const auto fill = entry("fill", [](Worker& worker) {
  const Memory memory(worker.session());
  Queue tensors(worker.session(), ObjectHandle::parse(worker.arguments().at(1)));
  Lock lock(worker.session(), ObjectHandle::parse(worker.arguments().at(2)));
  Tensor rows;
  Tensor total;
  if (get(tensors, memory, rows) != GetResult::got || get(tensors, memory, total) != GetResult::got) return;
  rows.fill(std::stoi(worker.arguments().at(0)));
  const HeldLock held(lock);
  total.elements<double>()[0] += sum(rows);
});

int run() {
  const Session session = Session::start();
  const Memory memory(session);
  const Tensor matrix = zeros(memory, DType::float64, {400, 1000});
  const Tensor total = zeros(memory, DType::float64, {1});
  const Lock lock(session);
  std::vector<Process> workers;
  std::vector<Queue> queues;
  for (const Tensor& rows : matrix.split(4)) {  // views, which refer to the same elements
    Queue& tensors = queues.emplace_back(session);
    static_cast<void>(put(tensors, rows));
    static_cast<void>(put(tensors, total));
    workers.push_back(
        Process::start(session, {.entry = fill,
                                 .arguments = {std::to_string(workers.size() + 1), tensors.handle().to_string(),
                                               lock.handle().to_string()}}));
  }
  for (auto& worker : workers) static_cast<void>(worker.wait(Deadline::never()));
  fmt::print("{:.1f} {:.1f}\n", sum(matrix), total.item<double>());
  return sum(matrix) == 1'000'000 && total.item<double>() == 1'000'000 ? 0 : 1;
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
