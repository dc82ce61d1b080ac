#include "device/workload.hpp"
#include "drover/base/bytes.hpp"

namespace drover::bench {
namespace {

double seconds_of(const std::function<void()>& step) {
  const auto begin = std::chrono::steady_clock::now();
  step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Samples {
  std::vector<double> create, export_fd, import, map, unmap, release;
};

void one_life(Backend& backend, Device& device, std::size_t bytes, Samples& samples) {
  std::unique_ptr<Slab> slab;
  std::unique_ptr<Slab> imported;
  std::unique_ptr<DeviceMemory> memory;
  Fd exported;
  samples.create.push_back(seconds_of([&] { slab = backend.create_slab(0, bytes); }));
  samples.export_fd.push_back(seconds_of([&] { exported = slab->export_fd(); }));
  samples.import.push_back(seconds_of([&] { imported = backend.import_slab(0, exported, slab->size()); }));
  samples.map.push_back(seconds_of([&] { memory = device.map(*imported); }));
  samples.unmap.push_back(seconds_of([&] { memory.reset(); }));
  imported.reset();
  exported.reset();
  samples.release.push_back(seconds_of([&] { slab.reset(); }));
}

}  // namespace

void measure_slabs(Backend& backend, bool is_smoke, std::vector<Row>& rows) {
  Device& device = backend.open(0);
  const auto sizes = is_smoke ? std::vector{2 * kMiB} : std::vector{2 * kMiB, 64 * kMiB, kGiB, 8 * kGiB};
  for (const auto bytes : sizes) {
    if (bytes > backend.memory_info(0).free / 2) continue;
    Samples samples;
    one_life(backend, device, bytes, samples);  // not counted: the first one includes one-time costs
    samples = {};
    for (int round = 0; round < (is_smoke ? 2 : 30); ++round) one_life(backend, device, bytes, samples);
    const auto name = workload_name(backend, bytes);
    rows.push_back(time_row(name, "drover", "create slab", samples.create));
    rows.push_back(time_row(name, "drover", "export slab", samples.export_fd));
    rows.push_back(time_row(name, "drover", "import slab", samples.import));
    rows.push_back(time_row(name, "drover", "map slab", samples.map));
    rows.push_back(time_row(name, "drover", "unmap slab", samples.unmap));
    rows.push_back(time_row(name, "drover", "release slab", samples.release));
  }
}

}  // namespace drover::bench
