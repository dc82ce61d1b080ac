#include "support/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "drover/base/bytes.hpp"

namespace drover::bench {
namespace {

double quantile(std::vector<double> values, double q) {
  const auto place = static_cast<std::size_t>(std::lround(q * static_cast<double>(values.size() - 1)));
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(place));
  return values[place];
}

const Row& first_of_group(const std::vector<Row>& rows, const Row& row) {
  return *std::ranges::find_if(
      rows, [&](const Row& other) { return other.workload == row.workload && other.metric == row.metric; });
}

std::string ratio(const std::vector<Row>& rows, const Row& row) {
  const Row& first = first_of_group(rows, row);
  return &first == &row ? "" : fmt::format("{:.2f}x of {}", row.median / first.median, first.contender);
}

void write_json(const std::vector<Row>& rows, const std::string& path) {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& row : rows) {
    all.push_back({{"workload", row.workload},
                   {"contender", row.contender},
                   {"metric", row.metric},
                   {"unit", row.unit},
                   {"median", row.median},
                   {"p99", row.p99},
                   {"n", row.n}});
  }
  const std::filesystem::path file(path);
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file);
  out << all.dump(1) << '\n';
  out.flush();
  if (!out) throw std::runtime_error("cannot write the results to " + path);
}

void add_limits(CLI::App& app, Limits& limits) {
  const auto set_largest = [&limits](const std::string& text) {
    const auto bytes = parse_bytes(text);
    if (!bytes) throw CLI::ValidationError("--largest", "'" + text + "' is not a size such as 64MiB");
    limits.largest = *bytes;
  };
  const auto set_end = [&limits](double seconds) {
    const auto length = std::chrono::duration<double>(seconds);
    limits.end = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::milliseconds>(length);
  };
  app.add_option_function<std::string>("--largest", set_largest, "Skip larger sizes than this, e.g. 64MiB");
  app.add_option_function<double>("--seconds", set_end, "Begin no step after this time")->check(CLI::Range(0.0, 1e6));
}

}  // namespace

Options parse_options(int argc, char** argv, const std::string& description, Limits* limits) {
  Options options;
  CLI::App app(description);
  app.add_option("--json", options.json, "Write the rows to this file");
  app.add_option("--contender", options.contender, "Only contenders with this in their names");
  app.add_option("--metric", options.metric, "Only metrics with this in their names");
  app.add_option("--workload", options.workload, "Only workloads with this in their names, e.g. '1:1, 8 B'");
  app.add_flag("--smoke", options.is_smoke, "Run each step briefly to check that it works; the figures mean nothing");
  if (limits != nullptr) add_limits(app, *limits);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  return options;
}

std::vector<double> time_each(std::size_t n, const std::function<void()>& body) {
  body();
  std::vector<double> seconds;
  for (std::size_t i = 0; i < n; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return seconds;
}

Row time_row(std::string workload, std::string contender, std::string metric, const std::vector<double>& seconds) {
  return {std::move(workload),          std::move(contender),          std::move(metric), "us",
          quantile(seconds, 0.5) * 1e6, quantile(seconds, 0.99) * 1e6, seconds.size()};
}

Row nanosecond_row(std::string workload, std::string contender, std::string metric,
                   const std::vector<double>& nanoseconds) {
  return {std::move(workload),        std::move(contender),        std::move(metric), "ns",
          quantile(nanoseconds, 0.5), quantile(nanoseconds, 0.99), nanoseconds.size()};
}

Row rate_row(std::string workload, std::string contender, std::string metric, std::size_t bytes,
             const std::vector<double>& seconds) {
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  return {std::move(workload),
          std::move(contender),
          std::move(metric),
          "GB/s",
          gigabytes / quantile(seconds, 0.5),
          gigabytes / quantile(seconds, 0.99),
          seconds.size()};
}

Row count_row(std::string workload, std::string contender, std::string metric, std::string unit,
              const std::vector<double>& rates) {
  return {std::move(workload),  std::move(contender),  std::move(metric), std::move(unit),
          quantile(rates, 0.5), quantile(rates, 0.01), rates.size()};
}

void report(const std::vector<Row>& rows, const Options& options) {
  fmt::print("{:<26} {:<28} {:<18} {:>11} {:>11} {:>6} {:<5}\n", "workload", "contender", "metric", "median", "p99",
             "n", "unit");
  for (const auto& row : rows) {
    fmt::print("{:<26} {:<28} {:<18} {:>11.2f} {:>11.2f} {:>6} {:<5} {}\n", row.workload, row.contender, row.metric,
               row.median, row.p99, row.n, row.unit, ratio(rows, row));
  }
  if (!options.json.empty()) write_json(rows, options.json);
}

}  // namespace drover::bench
