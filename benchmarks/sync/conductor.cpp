#include "sync/conductor.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "support/cpus.hpp"
#include "sync/parts.hpp"

namespace drover::bench {
namespace {

// The beginning of every Shared.
std::uint64_t guarded_of(const Fd& memory) {
  const Mapping mapping = Mapping::shared(memory, sizeof(std::uint64_t));
  std::uint64_t value = 0;
  std::memcpy(&value, mapping.data(), sizeof(value));
  return value;
}

}  // namespace

Conductor::Conductor(Crew& crew, const Pace& pace) : crew_(crew), pace_(pace), cores_(separate_cores()) {}

bool Conductor::is_rate(const Cell& cell) noexcept { return task_of(cell.kind) == Task::lock && cell.processes > 1; }

std::vector<double> Conductor::measure(const Cell& cell, std::uint32_t contender) {
  crew_.clear_board();
  Made made = contenders()[contender].make(cell, crew_.session());
  open(cell, contender, made);
  made.keep.reset();
  tell_all(cell, "go");
  auto found = is_rate(cell) ? rates(cell) : std::vector<double>{};
  for (std::uint32_t worker = 0; worker < cell.processes; ++worker) crew_.expect(worker, "done");
  if (is_rate(cell)) {
    const auto passed = count_all(crew_.board(), {.first = 0, .count = cell.processes});
    const auto guarded = guarded_of(made.memory);
    if (passed != guarded)
      throw std::runtime_error(fmt::format("{} acquisitions, but {} were counted", passed, guarded));
  } else {
    found = crew_.samples();
  }
  tell_all(cell, "close");
  return found;
}

void Conductor::open(const Cell& cell, std::uint32_t contender, const Made& made) {
  Order order;
  order.contender = contender;
  order.cell = cell;
  order.budget_ns = pace_.sampling_ns;
  order.warm_samples = pace_.warm_samples;
  order.most_samples = pace_.most_samples;
  for (std::size_t place = 0; place < made.names.size(); ++place) {
    require(made.names[place].size() <= kMostName, "the name of a shared object is too long");
    std::ranges::copy(made.names[place], order.names[place].begin());
  }
  for (std::uint32_t worker = 0; worker < cell.processes; ++worker) {
    order.index = worker;
    order.cpu = cell.processes <= cores_.size() ? cores_[worker] : -1;
    std::array<char, sizeof(Order)> bytes{};
    std::memcpy(bytes.data(), &order, sizeof(order));
    const std::array fds = {made.memory.get()};
    crew_.send(worker, std::string_view(bytes.data(), bytes.size()), fds);
  }
  for (std::uint32_t worker = 0; worker < cell.processes; ++worker) crew_.expect(worker, "ready");
}

std::vector<double> Conductor::rates(const Cell& cell) {
  auto found = watch_rates(crew_.board(), {.first = 0, .count = cell.processes}, pace_.rates);
  crew_.board().signals.is_stopped.store(1);
  return found;
}

void Conductor::tell_all(const Cell& cell, const char* text) {
  for (std::uint32_t worker = 0; worker < cell.processes; ++worker) crew_.send(worker, text);
}

}  // namespace drover::bench
