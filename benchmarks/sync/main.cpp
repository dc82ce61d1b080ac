#include <cstring>
#include <exception>
#include <map>
#include <stdexcept>

#include <fmt/format.h>

#include "drover/session/worker.hpp"
#include "support/report.hpp"
#include "sync/conductor.hpp"

namespace drover::bench {
namespace {

constexpr std::uint32_t kRounds = 10;
constexpr std::uint32_t kMostProcesses = 4;
constexpr std::array kCells = {
    Cell{Kind::lock, 1},
    Cell{Kind::lock, 2},
    Cell{Kind::lock, 4},
    Cell{Kind::semaphore, 1},
    Cell{Kind::semaphore, 2},
    Cell{Kind::semaphore, 4},
    Cell{Kind::semaphore_turns, 2},
    Cell{Kind::event_turns, 2},
    Cell{Kind::condition_turns, 2},
    Cell{Kind::barrier, 2},
    Cell{Kind::barrier, 4},
};

Pace pace(bool is_smoke) {
  constexpr std::int64_t kMillisecond = 1'000'000;
  if (is_smoke) {
    return {.rates = {.warm_ns = 0, .window_ns = kMillisecond},
            .sampling_ns = kMillisecond,
            .warm_samples = 1,
            .most_samples = 5};
  }
  return {.rates = {.warm_ns = 10 * kMillisecond, .window_ns = 10 * kMillisecond, .window_least = 4, .windows = 8},
          .sampling_ns = 50 * kMillisecond,
          .warm_samples = 20,
          .most_samples = 5000};
}

// The results, by index of the cell and number of the contender.
using Samples = std::map<std::pair<std::size_t, std::uint32_t>, std::vector<double>>;

void measure_one(Conductor& conductor, std::size_t place, std::uint32_t number, Samples& samples) {
  try {
    const auto found = conductor.measure(kCells[place], number);
    auto& all = samples[{place, number}];
    all.insert(all.end(), found.begin(), found.end());
  } catch (const std::exception& error) {
    const auto* const name = contenders()[number].name;
    throw std::runtime_error(fmt::format("{}, {}: {}", name, workload_name(kCells[place]), error.what()));
  }
}

// Contenders take turns within every round, so that disturbances affect all of them alike.
Samples measure_all(const Options& options) {
  Samples samples;
  Crew crew(Session::start(), kMostProcesses);
  Conductor conductor(crew, pace(options.is_smoke));
  const std::uint32_t rounds = options.is_smoke ? 1 : kRounds;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    fmt::print(stderr, "round {} of {}\n", round + 1, rounds);
    for (std::size_t place = 0; place < kCells.size(); ++place) {
      const Cell& cell = kCells[place];
      for (std::uint32_t number = 0; number < contenders().size(); ++number) {
        const Contender& contender = contenders()[number];
        if (contender.kind != cell.kind) continue;
        if (!options.wants(workload_name(cell), contender.name, metric_name(cell))) continue;
        measure_one(conductor, place, number, samples);
      }
    }
  }
  return samples;
}

std::vector<Row> rows_of(const Samples& samples) {
  std::vector<Row> rows;
  for (const auto& [key, found] : samples) {
    const Cell& cell = kCells[key.first];
    const Contender& contender = contenders()[key.second];
    if (found.empty()) continue;
    rows.push_back(Conductor::is_rate(cell)
                       ? count_row(workload_name(cell), contender.name, metric_name(cell), "1/s", found)
                       : nanosecond_row(workload_name(cell), contender.name, metric_name(cell), found));
  }
  return rows;
}

void handle_order(ChannelMessage& message, Post& post) {
  Order order;
  if (message.bytes.size() != sizeof(order) || message.fds.size() != 1)
    throw std::runtime_error("received a message that is not an order");
  std::memcpy(&order, message.bytes.data(), sizeof(order));
  contenders()[order.contender].play(order, message.fds.front(), post);
}

}  // namespace
}  // namespace drover::bench

int main(int argc, char** argv) {
  using namespace drover;
  using namespace drover::bench;
  try {
    init(argc, argv);
    work_if_worker(argc, argv, handle_order);
    const auto options = parse_options(argc, argv, "Locks and other synchronisation between processes.");
    if (boost_contenders().empty()) fmt::print("skipped: boost: it was missing when this program was built\n");
    report(rows_of(measure_all(options)), options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
