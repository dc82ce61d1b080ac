// Arrays of the host, doubled on devices: each worker uses the device that the pool gave it.
#include <exception>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drover/drover.hpp"

namespace {

using namespace drover;
constexpr std::int64_t kSide = 1000;

const auto double_plus_one = task("double_plus_one", [](const Tensor& numbers) {
  const PoolWorker& worker = this_worker();
  const Tensor ones = full(worker.memory(), DType::float64, {kSide, kSide}, 1, worker.place());
  return add(scale(numbers.to(worker.place()), 2), ones).to(Place::cpu());
});

int run() {
  Pool pool({.workers = 4, .devices = "all"});
  std::vector<Tensor> inputs;
  for (int number = 0; number < 4; ++number)  // in shared memory, so that no worker copies them
    inputs.push_back(full(pool.memory(), DType::float64, {kSide, kSide}, number));
  std::vector<double> means;
  for (const Tensor& result : pool.map(double_plus_one, inputs)) means.push_back(sum(result) / (kSide * kSide));
  fmt::print("[{:.1f}]\n", fmt::join(means, ", "));
  return means == std::vector{1., 3., 5., 7.} ? 0 : 1;
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
