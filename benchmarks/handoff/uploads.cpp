// Copies to the device from host memory that processes share, and from memory that the driver allocates for one.
#include <cstring>

#include "drover/base/bytes.hpp"
#include "drover/device/backend.hpp"
#include "handoff/workload.hpp"
#include "support/bare_driver.hpp"

namespace drover::bench {

void measure_uploads(const Session& session, const Place& place, bool is_smoke, std::vector<Row>& rows) {
  const std::uint64_t bytes = is_smoke ? kMiB : kGiB;
  const std::size_t rounds = is_smoke ? 2 : 15;
  const std::string name = workload_name(place, bytes);
  Device& device = backend_of(place.backend).open(place.index);
  const auto target = device.allocate(bytes);
  Memory memory(session);
  const Block block = memory.allocate(Place::cpu(), bytes);
  const auto source = block.bytes().first(bytes);
  std::memset(source.data(), 1, source.size());  // every page present
  const auto registration = device.register_host(source);
  const auto shared = time_each(rounds, [&] { device.upload(target->ptr(), source.data(), bytes); });
  rows.push_back(rate_row(name, "drover, block at cpu", "host to device", bytes, shared));
  if (place.backend != BackendKind::cuda) return;
  use_first_gpu();
  const DriverHostMemory host(bytes);
  const auto bare = time_each(rounds, [&] { driver_upload(target->ptr().address, host.data(), bytes); });
  rows.push_back(rate_row(name, "bare driver, cuMemHostAlloc", "host to device", bytes, bare));
}

}  // namespace drover::bench
