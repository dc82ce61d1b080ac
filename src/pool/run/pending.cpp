#include "pool/run/pending.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace drover::pool {

std::size_t PendingTasks::add_lane() {
  lanes_.emplace_back();
  return lanes_.size() - 1;
}

void PendingTasks::push(TaskPtr task) {
  Lane& lane = lanes_.at(task->lane);
  lane.by_priority[task->options().priority].push_back(std::move(task));
  ++lane.size;
  ++size_;
}

void PendingTasks::push_again(TaskPtr task) {
  Lane& lane = lanes_.at(task->lane);
  Queue& queue = lane.by_priority[task->options().priority];
  const auto at = std::ranges::lower_bound(queue, task->number, {}, [](const TaskPtr& one) { return one->number; });
  queue.insert(at, std::move(task));
  ++lane.size;
  ++size_;
}

void PendingTasks::drop_front(Lane& lane) {
  const auto first = lane.by_priority.begin();
  first->second.pop_front();
  if (first->second.empty() && lane.by_priority.size() > 1)
    lane.by_priority.erase(first);  // keep the last one for reuse
  --lane.size;
  --size_;
}

const TaskPtr* PendingTasks::front(Lane& lane) {
  while (lane.size > 0) {
    const auto first = lane.by_priority.begin();
    if (first->second.empty()) {
      lane.by_priority.erase(first);
      continue;
    }
    const TaskPtr& task = first->second.front();
    if (!task->is_over()) return &task;
    drop_front(lane);
  }
  return nullptr;
}

const TaskPtr* PendingTasks::peek(std::span<const std::size_t> lanes) {
  const TaskPtr* best = nullptr;
  for (const std::size_t number : lanes) {
    Lane& lane = lanes_.at(number);
    const TaskPtr* const task = front(lane);
    if (task == nullptr) continue;
    const auto rank = [](const TaskPtr& one) { return std::pair(~one->options().priority, one->number); };
    if (best != nullptr && rank(*best) < rank(*task)) continue;
    best = task;
    peeked_ = &lane;
  }
  return best;
}

TaskPtr PendingTasks::take() {
  TaskPtr task = std::move(peeked_->by_priority.begin()->second.front());
  drop_front(*peeked_);
  return task;
}

bool PendingTasks::erase(const detail::TaskCall& task) {
  Lane& lane = lanes_.at(task.lane);
  const auto at = lane.by_priority.find(task.options().priority);
  if (at == lane.by_priority.end()) return false;
  const auto removed = std::erase_if(at->second, [&](const TaskPtr& one) { return one.get() == &task; });
  if (at->second.empty()) lane.by_priority.erase(at);
  lane.size -= removed;
  size_ -= removed;
  return removed > 0;
}

std::vector<TaskPtr> PendingTasks::take_lane(std::size_t lane) {
  std::vector<TaskPtr> all;
  Lane& from = lanes_.at(lane);
  all.reserve(from.size);
  for (auto& [priority, queue] : from.by_priority) std::ranges::move(queue, std::back_inserter(all));
  size_ -= from.size;
  from = {};
  return all;
}

std::vector<TaskPtr> PendingTasks::take_all() {
  std::vector<TaskPtr> all;
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
    std::ranges::move(take_lane(lane), std::back_inserter(all));
  return all;
}

}  // namespace drover::pool
