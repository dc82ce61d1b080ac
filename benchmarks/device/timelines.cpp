#include "device/workload.hpp"
#include "drover/base/bytes.hpp"
#include "drover/base/mapping.hpp"

namespace drover::bench {

void measure_timelines(Backend& backend, bool is_smoke, std::vector<Row>& rows) {
  Device& device = backend.open(0);
  const Mapping memory = Mapping::shared(make_memory_file("drover-bench", 4096), 4096);
  const auto registration = device.register_host(memory.bytes());
  auto* const words = reinterpret_cast<TimelineWord*>(memory.data());
  const auto first = device.create_stream();
  const auto second = device.create_stream();
  const std::size_t rounds = is_smoke ? 10 : 1000;
  const auto name = workload_name(backend, sizeof(TimelineWord));

  std::uint64_t step = 0;
  const auto round_trip = time_each(rounds, [&] {
    ++step;
    second->wait(words[0], step);
    second->signal(words[1], step);
    first->signal(words[0], step);
    static_cast<void>(timeline_wait(words[1], step, Deadline::never()));
  });
  rows.push_back(time_row(name, "drover", "stream-stream-CPU", round_trip));

  const auto blocking = time_each(rounds, [&] {
    first->signal(words[2], ++step);
    static_cast<void>(first->synchronize(Deadline::never()));
  });
  rows.push_back(time_row(name, "drover", "submit + sync", blocking));
}

}  // namespace drover::bench
