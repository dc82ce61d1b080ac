#include "queue/verdict.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace drover::bench {
namespace {

const Row* find(const std::vector<Row>& rows, std::string_view workload, std::string_view metric,
                std::string_view contender) {
  const auto found = std::ranges::find_if(rows, [&](const Row& row) {
    return row.workload == workload && row.metric == metric && row.contender == contender;
  });
  return found == rows.end() ? nullptr : &*found;
}

// The fastest contender other than drover.
const Row* best_peer(const std::vector<Row>& rows, std::string_view workload) {
  const Row* best = nullptr;
  for (const auto& row : rows) {
    const bool is_peer = !row.contender.starts_with("drover");
    if (row.workload != workload || row.metric != "messages" || !is_peer) continue;
    if (best == nullptr || row.median > best->median) best = &row;
  }
  return best;
}

void print_line(const std::string& what, const char* wanted, const Row* ours, const Row* theirs) {
  fmt::print("{:<44} target {:<8}", what, wanted);
  if (ours == nullptr || theirs == nullptr) {
    fmt::print(" not measured\n");
    return;
  }
  fmt::print(" measured {:.2f}  ({} {:.4g}, {} {:.4g} {})\n", ours->median / theirs->median, ours->contender,
             ours->median, theirs->contender, theirs->median, ours->unit);
}

}  // namespace

void print_verdict(const std::vector<Row>& rows) {
  fmt::print("\ntarget / measured, by medians\n");
  for (const char* const workload : {"1:1, 8 B", "1:1, 64 B", "1:1, 256 B"}) {
    print_line(fmt::format("messages against the best peer, {}", workload), ">= 3",
               find(rows, workload, "messages", "drover"), best_peer(rows, workload));
  }
  const Row* const line = find(rows, "1:1, 8 B", "hop, polling", "cache line");
  for (const char* const metric : {"hop, polling", "hop, waiting"}) {
    print_line(fmt::format("{} against the cache line, 8 B", metric), "<= 4",
               find(rows, "1:1, 8 B", metric, "drover"), line);
  }
  print_line("wake against the bare futex, 8 B", "<= 1.3", find(rows, "1:1, 8 B", "wake", "drover"),
             find(rows, "1:1, 8 B", "wake", "futex"));
  print_line("loan of 64 MiB against one of 1 MiB", "about 1",
             find(rows, "1:1, 64.0 MiB", "hop, polling", "drover loan"),
             find(rows, "1:1, 1.0 MiB", "hop, polling", "drover loan"));
  for (const char* const workload : {"1:1, 1.0 MiB", "1:1, 16.0 MiB", "1:1, 64.0 MiB"}) {
    print_line(fmt::format("write + read against memcpy, {}", workload), "no copy",
               find(rows, workload, "write + read", "drover loan"), find(rows, workload, "write + read", "memcpy"));
  }
}

}  // namespace drover::bench
