#include <exception>

#include <fmt/format.h>

#include "device/workload.hpp"
#include "drover/base/bytes.hpp"

namespace drover::bench {

std::string workload_name(const Backend& backend, std::size_t bytes) {
  return fmt::format("{}, {}", device_id(backend.devices().front()), format_bytes(bytes));
}

}  // namespace drover::bench

int main(int argc, char** argv) {
  using namespace drover;
  try {
    const auto options = bench::parse_options(argc, argv, "Slabs, copies and timelines of every backend present.");
    std::vector<bench::Row> rows;
    for (Backend* const backend : available_backends()) {
      fmt::print(stderr, "measuring {} ({})\n", device_id(backend->devices().front()),
                 backend->devices().front().name);
      bench::measure_slabs(*backend, options.is_smoke, rows);
      bench::measure_copies(*backend, options.is_smoke, rows);
      if (backend->kind() == BackendKind::cuda) bench::measure_driver_memory(*backend, options.is_smoke, rows);
      bench::measure_timelines(*backend, options.is_smoke, rows);
    }
    bench::report(rows, options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
