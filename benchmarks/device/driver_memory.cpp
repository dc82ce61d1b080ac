// The peer: memory that the driver itself allocates for copies, without drover.
#include "device/workload.hpp"
#include "drover/base/bytes.hpp"
#include "support/bare_driver.hpp"

namespace drover::bench {

void measure_driver_memory(Backend& backend, bool is_smoke, std::vector<Row>& rows) {
  const auto memory = backend.open(0).allocate(is_smoke ? kMiB : kGiB);
  use_first_gpu();
  const DriverHostMemory host(memory->size());
  const std::size_t rounds = is_smoke ? 2 : 15;
  const auto address = memory->ptr().address;
  const auto up = time_each(rounds, [&] { driver_upload(address, host.data(), memory->size()); });
  const auto down = time_each(rounds, [&] { driver_download(host.data(), address, memory->size()); });
  const auto name = workload_name(backend, memory->size());
  rows.push_back(rate_row(name, "bare driver, cuMemHostAlloc", "host to device", memory->size(), up));
  rows.push_back(rate_row(name, "bare driver, cuMemHostAlloc", "device to host", memory->size(), down));
}

}  // namespace drover::bench
