// benchmarks/support/report.hpp: options, timing and tables of all benchmarks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
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

/// The command line: --json FILE, --smoke (a short run that measures nothing), --help; and --contender, --metric and
/// --workload, each with a part of the names to keep.
struct Options {
  std::string json;
  std::string contender;
  std::string metric;
  std::string workload;
  bool is_smoke = false;

  /// Whether the options select a row with these names.
  [[nodiscard]] bool wants(const std::string& row_workload, const std::string& row_contender,
                           const std::string& row_metric) const {
    return row_workload.find(workload) != std::string::npos && row_contender.find(contender) != std::string::npos &&
           row_metric.find(metric) != std::string::npos;
  }
};

/// Limits of a benchmark: --largest SIZE and --seconds N, after which no step begins.
struct Limits {
  std::uint64_t largest = ~std::uint64_t{0};
  std::chrono::steady_clock::time_point end = std::chrono::steady_clock::time_point::max();

  /// Whether a step of this size may begin now.
  [[nodiscard]] bool allow(std::uint64_t bytes) const {
    return bytes <= largest && std::chrono::steady_clock::now() < end;
  }
};

/// Parses the command line; ends the program for --help and wrong usage. A benchmark with limits passes `limits`.
[[nodiscard]] Options parse_options(int argc, char** argv, const std::string& description, Limits* limits = nullptr);

/// Runs `body` `n` times after one unrecorded run and returns each run's seconds.
[[nodiscard]] std::vector<double> time_each(std::size_t n, const std::function<void()>& body);

/// Times as a row in microseconds.
[[nodiscard]] Row time_row(std::string workload, std::string contender, std::string metric,
                           const std::vector<double>& seconds);
/// Times in nanoseconds as a row in nanoseconds.
[[nodiscard]] Row nanosecond_row(std::string workload, std::string contender, std::string metric,
                                 const std::vector<double>& nanoseconds);
/// `bytes` per time as a row in GB/s (10^9 bytes).
[[nodiscard]] Row rate_row(std::string workload, std::string contender, std::string metric, std::size_t bytes,
                           const std::vector<double>& seconds);

/// Rates, of any unit, as a row.
[[nodiscard]] Row count_row(std::string workload, std::string contender, std::string metric, std::string unit,
                            const std::vector<double>& rates);

/// Prints a table to standard output, and writes the JSON file if the options name one. The last column compares each
/// row with the first one of the same workload and metric.
void report(const std::vector<Row>& rows, const Options& options);

}  // namespace drover::bench
