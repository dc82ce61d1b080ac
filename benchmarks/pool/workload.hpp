// benchmarks/pool/workload.hpp: what is measured of every way to run tasks in workers.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "support/report.hpp"

namespace drover::bench {

/// Workers, ready to run empty tasks: each gives back the number it is given. Belongs to one thread.
class Runner {
 public:
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  virtual ~Runner() = default;

  /// Runs so many tasks and has all their results. Throws if one is wrong.
  virtual void run(std::size_t count) = 0;
  /// Runs one and waits for its result.
  virtual void run_one() { run(1); }
};

/// A way to run tasks.
struct Contender {
  std::string name;
  /// Starts so many workers and waits until they are ready.
  std::unique_ptr<Runner> (*make)(std::size_t workers) = nullptr;
  bool is_timed_alone = true;  ///< whether one task at a time makes sense
};

/// All of them, drover first.
[[nodiscard]] std::span<const Contender> contenders();

/// One file each; boost_asio gives none where it was not compiled in.
[[nodiscard]] std::vector<Contender> drover_pools();
[[nodiscard]] std::vector<Contender> thread_pools();
[[nodiscard]] std::vector<Contender> boost_asio();
[[nodiscard]] std::vector<Contender> forked_workers();
/// No contenders, but the limit of what drover's pools are made of.
[[nodiscard]] std::vector<Contender> bare_rings();

/// From nothing to workers that are ready.
void measure_start(const Options& options, std::vector<Row>& rows);
/// Large tensors as arguments, against their bytes in pipes.
void measure_tensors(const Options& options, std::vector<Row>& rows);

/// How soon a worker's death is known, and another in its place.
void measure_deaths(const Options& options, std::vector<Row>& rows);

/// "4 workers".
[[nodiscard]] std::string workers_text(std::size_t workers);
/// Throws unless `came` is `wanted`.
void check_result(std::size_t came, std::size_t wanted);

/// Prints what drover is held to. Says so where the rows for one are missing; never fails.
void print_verdict(const std::vector<Row>& rows);

}  // namespace drover::bench
