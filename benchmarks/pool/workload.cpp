#include "pool/workload.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include <fmt/format.h>

namespace drover::bench {

std::span<const Contender> contenders() {
  static const std::vector<Contender> all = [] {
    std::vector<Contender> found;
    for (auto* const list : {drover_pools, bare_rings, thread_pools, boost_asio, forked_workers}) {
      auto some = list();
      std::ranges::move(some, std::back_inserter(found));
    }
    return found;
  }();
  return all;
}

std::string workers_text(std::size_t workers) {
  return fmt::format("{} {}", workers, workers == 1 ? "worker" : "workers");
}

void check_result(std::size_t came, std::size_t wanted) {
  if (came != wanted) throw std::runtime_error(fmt::format("the result is {}, not {}", came, wanted));
}

}  // namespace drover::bench
