#include "queue/workload.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "queue/parts.hpp"

namespace drover::bench {

std::string workload_name(const Cell& cell) {
  return fmt::format("{}:{}, {}", cell.producers, cell.consumers, format_bytes(cell.bytes));
}

std::string metric_name(Metric metric) {
  switch (metric) {
    case Metric::messages: return "messages";
    case Metric::polled_hop: return "hop, polling";
    case Metric::waited_hop: return "hop, waiting";
    case Metric::wake: return "wake";
    case Metric::whole: return "write + read";
  }
  return "";
}

std::uint64_t depth_of(const Cell& cell) noexcept {
  return std::clamp<std::uint64_t>(16 * kMiB / cell.bytes, 4, 1024);
}

std::span<const Contender> contenders() {
  static const std::vector<Contender> all = {drover_queue(), drover_many(), drover_loan(),    posix_mq(),
                                             unix_packets(), unix_stream(), pipe_contender(), boost_message_queue(),
                                             zeromq(),       cache_line(),  bare_futex(),     plain_memcpy()};
  return all;
}

std::span<std::byte> arena(std::size_t number, std::size_t bytes) {
  static std::map<std::size_t, std::vector<std::byte>> arenas;
  auto& memory = arenas[number];
  if (memory.size() < bytes) memory.assign(bytes, std::byte{1});
  return std::span(memory).first(bytes);
}

}  // namespace drover::bench
