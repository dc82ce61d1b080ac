#include <exception>
#include <map>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "drover/session/worker.hpp"
#include "pool/workload.hpp"
#include "support/board.hpp"

namespace drover::bench {
namespace {

constexpr const char* kTasks = "tasks";
constexpr const char* kOne = "submit + get";

// The amount of work.
struct Pace {
  int rounds = 1;
  std::size_t tasks = 0;    // timed together
  std::size_t samples = 0;  // of these in a round
  std::size_t singles = 0;  // tasks timed one by one in a round
};

Pace pace(bool is_smoke) {
  if (is_smoke) return {.rounds = 1, .tasks = 500, .samples = 1, .singles = 5};
  return {.rounds = 3, .tasks = 200'000, .samples = 3, .singles = 2000};
}

// The results of a contender with a number of workers.
struct Found {
  std::vector<double> rates;        // tasks per second
  std::vector<double> nanoseconds;  // of one task
};

void measure_one(Runner& runner, const Pace& pace, bool is_timed_alone, Found& found) {
  runner.run(pace.tasks / 10 + 1);
  for (std::size_t i = 0; i < pace.samples; ++i) {
    const std::int64_t begin = now_ns();
    runner.run(pace.tasks);
    found.rates.push_back(static_cast<double>(pace.tasks) * 1e9 / static_cast<double>(now_ns() - begin));
  }
  for (std::size_t i = 0; is_timed_alone && i < pace.singles; ++i) {
    const std::int64_t begin = now_ns();
    runner.run_one();
    found.nanoseconds.push_back(static_cast<double>(now_ns() - begin));
  }
}

using AllFound = std::map<std::pair<std::size_t, std::size_t>, Found>;  // by workers and index of the contender

void measure_round(const Pace& pace, const Options& options, AllFound& all) {
  for (const std::size_t workers : {1U, 2U, 4U}) {
    const auto name = workers_text(workers);
    for (std::size_t place = 0; place < contenders().size(); ++place) {
      const Contender& contender = contenders()[place];
      if (!options.wants(name, contender.name, kTasks) && !options.wants(name, contender.name, kOne)) continue;
      try {
        const auto runner = contender.make(workers);
        measure_one(*runner, pace, contender.is_timed_alone, all[{workers, place}]);
      } catch (const std::exception& error) {
        throw std::runtime_error(fmt::format("{}, {}: {}", contender.name, name, error.what()));
      }
    }
  }
}

// Contenders take turns within every round, so that disturbances affect all of them alike.
void measure_tasks(const Options& options, std::vector<Row>& rows) {
  const Pace how = pace(options.is_smoke);
  AllFound all;
  for (int round = 0; round < how.rounds; ++round) {
    fmt::print(stderr, "round {} of {}\n", round + 1, how.rounds);
    measure_round(how, options, all);
  }
  for (const char* const metric : {kTasks, kOne}) {
    for (const auto& [key, found] : all) {
      const auto& contender = contenders()[key.second].name;
      const auto name = workers_text(key.first);
      if (!options.wants(name, contender, metric)) continue;
      if (metric == kTasks) {
        rows.push_back(count_row(name, contender, metric, "1/s", found.rates));
      } else if (!found.nanoseconds.empty()) {
        rows.push_back(nanosecond_row(name, contender, metric, found.nanoseconds));
      }
    }
  }
}

void run(const Options& options) {
  if (boost_asio().empty()) fmt::print("skipped: Boost.Asio: it was missing when this program was built\n");
  std::vector<Row> rows;
  measure_tasks(options, rows);
  fmt::print(stderr, "start\n");
  measure_start(options, rows);
  fmt::print(stderr, "tensors\n");
  measure_tensors(options, rows);
  measure_deaths(options, rows);
  report(rows, options);
  print_verdict(rows);
}

}  // namespace
}  // namespace drover::bench

int main(int argc, char** argv) {
  using namespace drover;
  try {
    init(argc, argv);
    bench::run(bench::parse_options(argc, argv, "Tasks in workers, by drover's pools and by their peers."));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
