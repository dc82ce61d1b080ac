#include "queue/conductor.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "queue/parts.hpp"
#include "support/cpus.hpp"

namespace drover::bench {
namespace {

// For large messages: enough to touch all memory of a lane.
constexpr std::uint32_t kFewWarm = 4;

bool is_sender(Part part) { return part == Part::produce || part == Part::ping || part == Part::wake; }

bool has_return(const Cell& cell, const Contender& contender) {
  return cell.metric != Metric::messages && cell.metric != Metric::wake && !contender.is_alone;
}

void write_name(Order& order, std::size_t way, const std::string& name) {
  require(name.size() <= kMostName, "the name of a lane is too long");
  std::ranges::copy(name, order.names[way].begin());
}

}  // namespace

Conductor::Conductor(Crew& crew, const Pace& pace) : crew_(crew), pace_(pace), cores_(separate_cores()) {}

std::vector<double> Conductor::measure(const Cell& cell, std::uint32_t contender) {
  const Contender& chosen = contenders()[contender];
  const auto roles = roles_of(cell, chosen);
  crew_.clear_board();
  {
    const Ways ways{.there = chosen.make(cell, crew_.session()),
                    .back = has_return(cell, chosen) ? chosen.make(cell, crew_.session()) : Endpoint{}};
    open(cell, contender, roles, ways);
  }
  tell_all(roles, "go");
  std::vector<double> found;
  if (cell.metric == Metric::messages) {
    found = rates(cell);
  } else {
    for (std::size_t worker = 0; worker < roles.size(); ++worker) crew_.expect(worker, "done");
    found = crew_.samples();
  }
  tell_all(roles, "close");
  return found;
}

std::vector<Conductor::Role> Conductor::roles_of(const Cell& cell, const Contender& contender) {
  if (contender.is_alone) return {{Part::ping, 0}};
  if (cell.metric == Metric::wake) return {{Part::wake, 0}, {Part::sleep, 0}};
  if (cell.metric != Metric::messages) return {{Part::ping, 0}, {Part::pong, 0}};
  std::vector<Role> roles;
  for (std::uint32_t i = 0; i < cell.producers; ++i) roles.push_back({Part::produce, i});
  for (std::uint32_t i = 0; i < cell.consumers; ++i) roles.push_back({Part::consume, i});
  return roles;
}

// Receivers first: in some contenders only existing receivers can be connected to.
void Conductor::open(const Cell& cell, std::uint32_t contender, const std::vector<Role>& roles, const Ways& ways) {
  Order order;
  order.contender = contender;
  order.cell = cell;
  order.warm_samples = cell.bytes < kNoted ? pace_.warm_samples : std::min(pace_.warm_samples, kFewWarm);
  order.most_samples = pace_.most_samples;
  order.budget_ns = pace_.sampling_ns;
  order.partner = roles.size() > 1 ? crew_.pid(1) : 0;
  write_name(order, 0, ways.there.name);
  write_name(order, 1, ways.back.name);
  for (std::size_t worker = roles.size(); worker-- > 0;) {
    order.part = roles[worker].part;
    order.index = roles[worker].index;
    order.cpu = roles.size() <= cores_.size() ? cores_[worker] : -1;
    give_order(worker, order, ways);
  }
}

void Conductor::give_order(std::size_t worker, const Order& order, const Ways& ways) {
  std::vector<int> fds;
  const Fd& there = is_sender(order.part) ? ways.there.producer : ways.there.consumer;
  const Fd& back = is_sender(order.part) ? ways.back.consumer : ways.back.producer;
  for (const Fd* const fd : {&there, &back}) {
    if (fd->is_open()) fds.push_back(fd->get());
  }
  std::array<char, sizeof(Order)> bytes{};
  std::memcpy(bytes.data(), &order, sizeof(order));
  crew_.send(worker, std::string_view(bytes.data(), bytes.size()), fds);
  crew_.expect(worker, "ready");
}

void Conductor::tell_all(const std::vector<Role>& roles, const char* text) {
  for (std::size_t worker = 0; worker < roles.size(); ++worker) crew_.send(worker, text);
}

std::vector<double> Conductor::rates(const Cell& cell) {
  const Watched consumers{.first = cell.producers, .count = cell.consumers, .is_noted = cell.bytes >= kNoted};
  RatePace pace = pace_.rates;
  // Until all memory of the queue was used once.
  if (consumers.is_noted && pace.window_least > 1) pace.warm_least = depth_of(cell) + 2;
  auto found = watch_rates(crew_.board(), consumers, pace);
  stop(cell, consumers);
  return found;
}

void Conductor::stop(const Cell& cell, const Watched& consumers) {
  std::uint64_t sent = 0;
  crew_.board().signals.is_stopped.store(1);
  for (std::size_t worker = 0; worker < cell.producers; ++worker) sent += std::stoull(crew_.receive(worker));
  crew_.board().signals.total.store(sent);
  for (std::size_t worker = 0; worker < cell.producers; ++worker) crew_.send(worker, "finish");
  for (std::uint32_t i = 0; i < cell.consumers; ++i) crew_.expect(cell.producers + i, "done");
  const auto came = count_all(crew_.board(), consumers);
  if (came != sent) throw std::runtime_error(fmt::format("{} messages were sent, and {} arrived", sent, came));
}

}  // namespace drover::bench
