// benchmarks/pool/workload.hpp: measurements of ways to run tasks in workers.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "support/report.hpp"

namespace drover::bench {

/// Workers that run empty tasks, each of which returns its argument. Belongs to one thread.
class Runner {
 public:
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  virtual ~Runner() = default;

  /// Runs this many tasks and checks their results. Throws if one is wrong.
  virtual void run(std::size_t count) = 0;
  /// Runs one task and waits for its result.
  virtual void run_one() { run(1); }
};

/// A contender: a way to run tasks.
struct Contender {
  std::string name;
  /// Starts this many workers and waits until they are ready.
  std::unique_ptr<Runner> (*make)(std::size_t workers) = nullptr;
  bool is_timed_alone = true;  ///< whether one task at a time makes sense
};

/// All contenders, drover first.
[[nodiscard]] std::span<const Contender> contenders();

/// Each contender has its own file; boost_asio returns none if it was not compiled in.
[[nodiscard]] std::vector<Contender> drover_pools();
[[nodiscard]] std::vector<Contender> thread_pools();
[[nodiscard]] std::vector<Contender> boost_asio();
[[nodiscard]] std::vector<Contender> forked_workers();
/// Not contenders, but the limit that drover's queues set for pools.
[[nodiscard]] std::vector<Contender> bare_rings();

/// The start of workers until they are ready.
void measure_start(const Options& options, std::vector<Row>& rows);
/// Large tensors as arguments, compared with their bytes in pipes.
void measure_tensors(const Options& options, std::vector<Row>& rows);

/// The time until a worker's death is known, and until it is replaced.
void measure_deaths(const Options& options, std::vector<Row>& rows);

/// "4 workers".
[[nodiscard]] std::string workers_text(std::size_t workers);
/// Throws unless `came` is `wanted`.
void check_result(std::size_t came, std::size_t wanted);

/// Prints the targets and the measurements, or "not measured" for missing rows. Never fails.
void print_verdict(const std::vector<Row>& rows);

}  // namespace drover::bench
