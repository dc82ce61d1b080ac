// Sums of four tensors by four workers, on GPUs or on emulated devices. Workers receive the tensors by handle.
#include <exception>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drover/drover.hpp"

namespace {

using namespace drover;

// Tasks are registered before main, so that every process of this program knows them.
const auto add_up = task("add_up", [](const Tensor& tensor) { return sum(tensor); });

int run() {
  Pool pool({.workers = 4, .devices = "all"});
  const Place device = Place::device(select_backend().backend.kind(), 0);
  std::vector<Tensor> tensors;
  for (std::int64_t i = 0; i < 4; ++i)
    tensors.push_back(arange(pool.memory(), DType::int64, i, i + 1'000'000, device));
  const std::vector<double> sums = pool.map(add_up, tensors);
  fmt::print("[{:.0f}]\n", fmt::join(sums, ", "));
  return sums == std::vector{499999500000., 500000500000., 500001500000., 500002500000.} ? 0 : 1;
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
