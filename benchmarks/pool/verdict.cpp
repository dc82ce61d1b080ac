// The targets of pools, compared with the measurements.
#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "pool/workload.hpp"

namespace drover::bench {
namespace {

constexpr double kBatched = 1'000'000;  // tasks per second through 4 workers, with 16 cores
constexpr double kUnbatched = 200'000;

const Row* find(const std::vector<Row>& rows, std::string_view workload, std::string_view metric,
                std::string_view contender) {
  const auto found = std::ranges::find_if(rows, [&](const Row& row) {
    return row.workload == workload && row.metric == metric && row.contender == contender;
  });
  return found == rows.end() ? nullptr : &*found;
}

void print_line(const std::string& what, const char* wanted, const Row* ours, const Row* theirs) {
  fmt::print("{:<52} target {:<8}", what, wanted);
  if (ours == nullptr || theirs == nullptr) {
    fmt::print(" not measured\n");
    return;
  }
  fmt::print(" measured {:.2f}  ({} {:.4g}, {} {:.4g} {})\n", ours->median / theirs->median, ours->contender,
             ours->median, theirs->contender, theirs->median, ours->unit);
}

void print_rate(const std::string& what, double wanted, const Row* ours) {
  fmt::print("{:<52} target {:<8.0f}", what, wanted);
  if (ours == nullptr) {
    fmt::print(" not measured\n");
  } else {
    fmt::print(" measured {:.0f}\n", ours->median);
  }
}

}  // namespace

void print_verdict(const std::vector<Row>& rows) {
  fmt::print("\ntarget / measured, by medians\n");
  print_rate("empty tasks per second, 4 workers", kBatched, find(rows, "4 workers", "tasks", "drover, map"));
  print_rate("the same without batching", kUnbatched, find(rows, "4 workers", "tasks", "drover, map, unbatched"));
  for (const char* const workload : {"1 worker", "2 workers", "4 workers"}) {
    print_line(fmt::format("tasks against the bare ring, 64 and 1, {}", workload), ">= 0.5",
               find(rows, workload, "tasks", "drover, map"), find(rows, workload, "tasks", "ring, 64 and 1"));
    print_line(fmt::format("tasks unbatched against the bare ring, {}", workload), ">= 0.5",
               find(rows, workload, "tasks", "drover, map, unbatched"), find(rows, workload, "tasks", "ring"));
  }
  print_line("one task against one message of the ring, 1 worker", "<= 2",
             find(rows, "1 worker", "submit + get", "drover, map"), find(rows, "1 worker", "submit + get", "ring"));
  for (const char* const place : {"host:0", "cuda:0"}) {
    const auto one = fmt::format("1 worker, {}", place);
    const auto four = fmt::format("4 workers, {}", place);
    const Row* const bare = find(rows, one, "ready", "processes + contexts");
    print_line(fmt::format("start of 1 worker against a process + context, {}", place), "<= 1.2",
               find(rows, one, "ready", "drover"), bare);
    print_line(fmt::format("start of 4 workers against 4 of them, {}", place), "<= 1.2",
               find(rows, four, "ready", "drover"), find(rows, four, "ready", "processes + contexts"));
    print_line(fmt::format("start of 4 workers against 1 of them, {}", place), "<= 1.5",
               find(rows, four, "ready", "drover"), bare);
  }
  print_line("64 MiB tensors against bytes in pipes, last number", "> 1",
             find(rows, "4 workers, 64.0 MiB", "last number", "drover, tensors"),
             find(rows, "4 workers, 64.0 MiB", "last number", "fork + pipe, bytes"));
}

}  // namespace drover::bench
