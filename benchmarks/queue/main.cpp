#include <cstring>
#include <exception>
#include <map>
#include <stdexcept>
#include <tuple>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/session/worker.hpp"
#include "queue/conductor.hpp"
#include "queue/parts.hpp"
#include "queue/verdict.hpp"
#include "support/report.hpp"

namespace drover::bench {
namespace {

constexpr std::uint32_t kRounds = 5;
constexpr std::array<std::pair<std::uint32_t, std::uint32_t>, 4> kShapes = {{{1, 1}, {4, 1}, {1, 4}, {4, 4}}};

std::vector<std::uint64_t> sizes(bool is_smoke) {
  if (is_smoke) return {8, kMiB};
  return {8, 64, 256, kKiB, 4 * kKiB, 64 * kKiB, kMiB, 16 * kMiB, 64 * kMiB};
}

Pace pace(bool is_smoke) {
  constexpr std::int64_t kMillisecond = 1'000'000;
  if (is_smoke) {
    return {.rates = {.warm_ns = 0, .window_ns = kMillisecond},
            .sampling_ns = kMillisecond,
            .warm_samples = 2,
            .most_samples = 5};
  }
  return {.rates = {.warm_ns = 10 * kMillisecond, .window_ns = 10 * kMillisecond, .window_least = 4, .windows = 4},
          .sampling_ns = 30 * kMillisecond,
          .warm_samples = 200,
          .most_samples = 5000};
}

std::vector<Cell> cells(bool is_smoke) {
  std::vector<Cell> all;
  for (const auto& [producers, consumers] : kShapes) {
    if (is_smoke && producers != consumers) continue;
    for (const auto bytes : sizes(is_smoke)) all.push_back({Metric::messages, producers, consumers, bytes});
  }
  for (const auto metric : {Metric::polled_hop, Metric::waited_hop}) {
    for (const auto bytes : sizes(is_smoke)) all.push_back({metric, 1, 1, bytes});
  }
  all.push_back({Metric::wake, 1, 1, 8});
  for (const auto bytes : sizes(is_smoke)) {
    if (bytes >= kMiB) all.push_back({Metric::whole, 1, 1, bytes});
  }
  return all;
}

// The results, by index of the cell and number of the contender.
using Samples = std::map<std::pair<std::size_t, std::uint32_t>, std::vector<double>>;

bool takes_part(const Cell& cell, const Contender& contender, const Options& options) {
  return options.wants(workload_name(cell), contender.name, metric_name(cell.metric)) &&
         contender.refusal(cell).empty();
}

void measure_one(Conductor& conductor, const Cell& cell, std::uint32_t number, std::vector<double>& samples) {
  try {
    const auto found = conductor.measure(cell, number);
    samples.insert(samples.end(), found.begin(), found.end());
  } catch (const std::exception& error) {
    const auto where =
        fmt::format("{}, {}, {}", contenders()[number].name, metric_name(cell.metric), workload_name(cell));
    throw std::runtime_error(fmt::format("{}: {}", where, error.what()));
  }
}

// Contenders take turns within every round, so that disturbances affect all of them alike.
Samples measure_all(const std::vector<Cell>& cells, const Options& options) {
  Samples samples;
  Crew crew(Session::start(), kMostWorkers);
  Conductor conductor(crew, pace(options.is_smoke));
  const std::uint32_t rounds = options.is_smoke ? 1 : kRounds;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    fmt::print(stderr, "round {} of {}\n", round + 1, rounds);
    for (std::size_t place = 0; place < cells.size(); ++place) {
      for (std::uint32_t number = 0; number < contenders().size(); ++number) {
        if (!takes_part(cells[place], contenders()[number], options)) continue;
        measure_one(conductor, cells[place], number, samples[{place, number}]);
      }
    }
  }
  return samples;
}

// Nanoseconds for small messages, microseconds for large ones.
Row row_of(const Cell& cell, const Contender& contender, const std::vector<double>& found) {
  const auto workload = workload_name(cell);
  const auto metric = metric_name(cell.metric);
  if (cell.metric == Metric::messages) return count_row(workload, contender.name, metric, "msg/s", found);
  if (cell.bytes < kNoted) return nanosecond_row(workload, contender.name, metric, found);
  std::vector<double> seconds;
  for (const double nanoseconds : found) seconds.push_back(nanoseconds / 1e9);
  return time_row(workload, contender.name, metric, seconds);
}

std::vector<Row> rows_of(const std::vector<Cell>& cells, const Samples& samples) {
  std::vector<Row> rows;
  for (const auto& [key, found] : samples) {
    if (!found.empty()) rows.push_back(row_of(cells[key.first], contenders()[key.second], found));
  }
  return rows;
}

void print_left_out(const std::vector<Cell>& cells) {
  for (const auto& contender : contenders()) {
    bool takes_part = false;
    for (const auto& cell : cells) takes_part = takes_part || contender.refusal(cell).empty();
    if (!takes_part) fmt::print("skipped: {}: {}\n", contender.name, contender.refusal(cells.front()));
  }
}

void handle_order(ChannelMessage& message, Post& post) {
  Order order;
  if (message.bytes.size() != sizeof(order)) throw std::runtime_error("received a message that is not an order");
  std::memcpy(&order, message.bytes.data(), sizeof(order));
  std::array<Fd, 2> fds;
  for (std::size_t i = 0; i < message.fds.size() && i < fds.size(); ++i) fds[i] = std::move(message.fds[i]);
  contenders()[order.contender].play(order, fds, post);
}

}  // namespace
}  // namespace drover::bench

int main(int argc, char** argv) {
  using namespace drover;
  using namespace drover::bench;
  try {
    init(argc, argv);
    work_if_worker(argc, argv, handle_order);
    const auto options = parse_options(argc, argv, "Messages between processes, by drover and by its peers.");
    const auto all = cells(options.is_smoke);
    print_left_out(all);
    const auto rows = rows_of(all, measure_all(all, options));
    report(rows, options);
    print_verdict(rows);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
