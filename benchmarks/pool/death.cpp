// The time until the death of a worker is known, and until its replacement answers.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "drover/base/log.hpp"
#include "drover/pool/pool.hpp"
#include "pool/workload.hpp"
#include "support/board.hpp"

namespace drover::bench {
namespace {

constexpr const char* kKilled = "a worker is killed";
constexpr const char* kKnown = "known";
constexpr const char* kReplaced = "replaced";
constexpr std::chrono::milliseconds kUntilItRuns{20};

const auto death_hang = task("death_hang", [] { ::pause(); });
const auto death_answer = task("death_answer", [](int number) { return number; });

}  // namespace

void measure_deaths(const Options& options, std::vector<Row>& rows) {
  if (!options.wants(kKilled, "drover", kKnown) && !options.wants(kKilled, "drover", kReplaced)) return;
  const LogLevel before = log_threshold();
  set_log_threshold(LogLevel::off);  // each death is logged
  Pool pool({.workers = 2, .devices = "none"});
  std::vector<double> known;
  std::vector<double> replaced;
  for (int i = 0; i < (options.is_smoke ? 2 : 100); ++i) {
    static_cast<void>(pool.wait_ready());
    const auto hangs = pool.submit({.worker = 0}, death_hang);
    std::this_thread::sleep_for(kUntilItRuns);
    const std::int64_t begin = now_ns();
    ::kill(pool.workers()[0].pid, SIGKILL);
    static_cast<void>(hangs.wait());
    known.push_back(static_cast<double>(now_ns() - begin));
    pool.submit({.worker = 0}, death_answer, i).get();
    replaced.push_back(static_cast<double>(now_ns() - begin));
  }
  set_log_threshold(before);
  rows.push_back(nanosecond_row(kKilled, "drover", kKnown, known));
  rows.push_back(nanosecond_row(kKilled, "drover", kReplaced, replaced));
}

}  // namespace drover::bench
