#include "pool/run/pool_state.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "pool/run/relocation_rule.hpp"

namespace drover::pool {

void PoolState::add_slots(const std::vector<WorkerPlan>& plans, std::size_t count, const WorkerPlanOptions& options,
                          const OwnBoard& board) {
  if (count > kMostBoardWorkers) {
    throw Error(Errc::limit_reached, fmt::format("a pool cannot have {} workers, only {}", count, kMostBoardWorkers),
                "use several pools, or fewer workers with more threads each");
  }
  for (std::size_t i = slots.size(); i < count; ++i) {
    auto slot = std::make_unique<WorkerSlot>();
    slot->index = i;
    slot->plan = plans.at(i);
    slot->board = &board.worker(i);
    slot->own_lane = pending.add_lane();
    slot->lanes = {PendingTasks::kAnyWorker, slot->own_lane};
    if (slot->plan.device) {
      const auto [lane, is_new] = device_lanes.try_emplace(slot->device_place(), 0);
      if (is_new) lane->second = pending.add_lane();
      slot->lanes.push_back(lane->second);
      slot->sees_others = sees_other_devices(slot->plan, options);
    }
    set_text(slot->board->title, slot->plan.name);
    set_text(slot->board->place, slot->place());
    slots.push_back(std::move(slot));
  }
  board.board().worker_slots = static_cast<std::uint32_t>(slots.size());
}

void PoolState::choose_lane(detail::TaskCall& task) const {
  if (const auto worker = task.options().worker) {
    if (*worker >= slots.size()) {
      throw Error(
          Errc::invalid_argument,
          fmt::format("{} is for worker {}, but the pool has {}", task.describe_call(), *worker, slots.size()),
          "workers are numbered from 0; see Pool::workers");
    }
    task.lane = slots[*worker]->own_lane;
    return;
  }
  std::map<Place, std::size_t> bytes;
  for (const auto& tensor : task.tensors()) {
    if (const Place place = tensor.place(); place.is_device) bytes[place] += tensor.bytes();
  }
  if (bytes.empty()) return;
  const auto most = std::ranges::max_element(bytes, {}, [](const auto& one) { return one.second; });
  const auto lane = device_lanes.find(most->first);
  if (lane == device_lanes.end()) {
    throw Error(Errc::invalid_argument,
                fmt::format("{} has a tensor on {}, where the pool has no worker", task.describe_call(),
                            to_string(most->first)),
                "copy it to a device of the pool with Tensor::to, or give the pool a worker there");
  }
  task.lane = lane->second;
}

bool PoolState::is_served(std::size_t lane) const {
  return lane == PendingTasks::kAnyWorker ||
         std::ranges::any_of(slots, [&](const auto& slot) { return slot->is_wanted && slot->serves(lane); });
}

bool PoolState::can_requeue(const detail::TaskCall& task) const {
  return !is_ending && !broken && !task.is_over() && is_served(task.lane);
}

void PoolState::check_open() const {
  if (broken) std::rethrow_exception(broken);
  if (!closed_why.empty()) throw Error(Errc::cancelled, closed_why, "make another pool");
}

void PoolState::refuse(TaskPtr task, std::exception_ptr error) {
  ++statistics.finished;
  ++statistics.failed;
  refusals.push_back({std::move(task), std::move(error)});
}

void PoolState::refuse_unserved() {
  for (std::size_t lane = 0; lane < pending.lane_count(); ++lane) {
    if (pending.size(lane) == 0 || is_served(lane)) continue;
    for (auto& task : pending.take_lane(lane)) {
      auto error = std::make_exception_ptr(
          Error(Errc::peer_lost, fmt::format("{} is for a worker that the pool no longer has", task->describe_call()),
                "the log says why the worker is gone; submit the task to another"));
      refuse(std::move(task), std::move(error));
    }
  }
}

void PoolState::refuse_cancelled(TaskPtr task, const char* why) {
  auto error = broken;
  if (!error) {
    error = std::make_exception_ptr(
        Error(Errc::cancelled, fmt::format("{} was cancelled: {}", task->describe_call(), why)));
  }
  refuse(std::move(task), std::move(error));
}

Refusals PoolState::take_refusals() { return std::exchange(refusals, {}); }

std::size_t PoolState::in_flight() const {
  std::size_t count = 0;
  for (const auto& slot : slots) count += slot->outstanding;
  return count;
}

void PoolState::update(Board& board) const {
  board.pending.store(pending.size(), std::memory_order_relaxed);
  board.in_flight.store(in_flight(), std::memory_order_relaxed);
  board.finished.store(statistics.finished, std::memory_order_relaxed);
  board.failed.store(statistics.failed, std::memory_order_relaxed);
  board.restarts.store(statistics.restarts, std::memory_order_relaxed);
}

}  // namespace drover::pool
