// pool/run/pending.hpp: tasks not sent to a worker yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "drover/pool/task.hpp"

namespace drover::pool {

using TaskPtr = std::shared_ptr<detail::TaskCall>;

/// Pending tasks in lanes: one for tasks that any worker may run, one for each device, one for each worker. Among the
/// lanes of a worker, a higher priority goes first, then submission order. Not synchronised.
class PendingTasks {
 public:
  static constexpr std::size_t kAnyWorker = 0;  ///< the first lane, of tasks for any worker

  /// Returns the number of the new lane.
  std::size_t add_lane();
  /// Appends a task to its lane, within its priority.
  void push(TaskPtr task);
  /// Inserts a task that was taken before in the order of numbers.
  void push_again(TaskPtr task);
  /// The first task in these lanes; nullptr if there is none. Drops tasks that are over.
  [[nodiscard]] const TaskPtr* peek(std::span<const std::size_t> lanes);
  /// Removes and returns the task of the last `peek`.
  [[nodiscard]] TaskPtr take();
  /// Removes a task and returns whether it was pending. Searches its lane.
  bool erase(const detail::TaskCall& task);
  /// Removes and returns all tasks of a lane.
  [[nodiscard]] std::vector<TaskPtr> take_lane(std::size_t lane);
  /// Removes and returns all tasks.
  [[nodiscard]] std::vector<TaskPtr> take_all();

  [[nodiscard]] std::size_t lane_count() const noexcept { return lanes_.size(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t size(std::size_t lane) const { return lanes_.at(lane).size; }

 private:
  using Queue = std::deque<TaskPtr>;
  struct Lane {
    std::map<int, Queue, std::greater<>> by_priority;
    std::size_t size = 0;
  };
  void drop_front(Lane& lane);
  [[nodiscard]] const TaskPtr* front(Lane& lane);

  std::vector<Lane> lanes_ = std::vector<Lane>(1);
  Lane* peeked_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace drover::pool
