#include <cstring>

#include "device/workload.hpp"
#include "drover/base/bytes.hpp"
#include "drover/base/mapping.hpp"

namespace drover::bench {
namespace {

// A memory file with every page present, like the host slabs of a session.
Mapping prefaulted_memory_file(std::size_t bytes) {
  Mapping memory = Mapping::shared(make_memory_file("drover-bench", bytes), bytes);
  std::memset(memory.data(), 1, bytes);
  return memory;
}

void measure(Backend& backend, const char* contender, const Mapping& host, std::size_t rounds,
             std::vector<Row>& rows) {
  Device& device = backend.open(0);
  const auto memory = device.allocate(host.size());
  const auto up = time_each(rounds, [&] { device.upload(memory->ptr(), host.data(), host.size()); });
  const auto down = time_each(rounds, [&] { device.download(host.data(), memory->ptr(), host.size()); });
  const auto name = workload_name(backend, host.size());
  rows.push_back(rate_row(name, contender, "host to device", host.size(), up));
  rows.push_back(rate_row(name, contender, "device to host", host.size(), down));
}

}  // namespace

void measure_copies(Backend& backend, bool is_smoke, std::vector<Row>& rows) {
  const std::size_t bytes = is_smoke ? kMiB : kGiB;
  const std::size_t rounds = is_smoke ? 2 : 15;
  const Mapping host = prefaulted_memory_file(bytes);
  measure(backend, "drover, unregistered memfd", host, rounds, rows);
  std::unique_ptr<HostRegistration> registration;
  const auto registering = time_each(is_smoke ? 1 : 5, [&] {
    registration.reset();
    registration = backend.open(0).register_host(host.bytes());
  });
  measure(backend, "drover, registered memfd", host, rounds, rows);
  rows.push_back(time_row(workload_name(backend, bytes), "drover", "unregister + register", registering));
}

}  // namespace drover::bench
