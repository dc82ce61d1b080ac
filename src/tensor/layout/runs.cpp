#include "tensor/layout/runs.hpp"

namespace drover::detail {

std::vector<Run> joined(const std::vector<Run>& runs) {
  std::vector<Run> result;
  for (const Run& run : runs) {
    if (run.size == 1) continue;
    // Walking the outer one by one step must be the same as walking the inner one to its end.
    const auto follows = [&](std::size_t k) { return result.back().ways.at(k) == run.ways.at(k) * run.size; };
    if (!result.empty() && follows(0) && follows(1)) {
      result.back() = {.size = result.back().size * run.size, .ways = run.ways};
    } else {
      result.push_back(run);
    }
  }
  return result;
}

std::vector<Run> joined_runs(const TensorLayout& first, const TensorLayout& second) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < first.shape().size(); ++i) {
    runs.push_back({.size = first.shape()[i], .ways = {first.strides()[i], second.strides()[i]}});
  }
  return joined(runs);
}

}  // namespace drover::detail
