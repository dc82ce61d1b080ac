// benchmarks/support/report.hpp: what every benchmark measures with and prints.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace drover::bench {

/// One figure of one contender: the rows of build/bench/<workload>.json.
struct Row {
  std::string workload;   ///< e.g. "slab 64 MiB"
  std::string contender;  ///< e.g. "drover", "cuMemHostAlloc"
  std::string metric;     ///< e.g. "create"
  std::string unit;       ///< e.g. "us", "GB/s"
  double median;          ///< of the samples
  double p99;             ///< the bad end: the 99th percentile of times, the 1st of rates
  std::size_t n;          ///< samples
};

/// What the command line asks for: --json FILE, --smoke (a moment instead of a measurement), --help.
struct Options {
  std::string json;
  bool is_smoke = false;
};

/// Reads the command line; ends the program for --help and wrong usage.
[[nodiscard]] Options parse_options(int argc, char** argv, const std::string& description);

/// Runs `body` `n` times after one unrecorded run and returns each run's seconds.
[[nodiscard]] std::vector<double> time_each(std::size_t n, const std::function<void()>& body);

/// Times as a row in microseconds.
[[nodiscard]] Row time_row(std::string workload, std::string contender, std::string metric,
                           const std::vector<double>& seconds);
/// `bytes` per time as a row in GB/s (10^9 bytes).
[[nodiscard]] Row rate_row(std::string workload, std::string contender, std::string metric, std::size_t bytes,
                           const std::vector<double>& seconds);

/// Prints a table to standard output and writes the JSON file if one was asked for. In each group of the same
/// workload and metric the last column compares with the first row's contender.
void report(const std::vector<Row>& rows, const Options& options);

}  // namespace drover::bench
