// pool/run/pending.hpp: tasks that no worker has yet.
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

namespace drover {

using TaskPtr = std::shared_ptr<detail::TaskCall>;

/// Waiting tasks in lanes: one for those that anybody may run, one for each device, one for each worker. Within what
/// a worker may take, a higher priority goes first, and then who came first. Not synchronised.
class PendingTasks {
 public:
  static constexpr std::size_t kAnybody = 0;  ///< the lane that always exists

  /// Makes one more lane and returns its number.
  std::size_t add_lane();
  /// At the end of its lane, within its priority.
  void push(TaskPtr task);
  /// At the place where its number belongs: for a task that was taken before.
  void push_again(TaskPtr task);
  /// The first task in these lanes; it stays. Nothing if there is none. Tasks that are over are thrown away.
  [[nodiscard]] const TaskPtr* peek(std::span<const std::size_t> lanes);
  /// Takes the one that `peek` gave.
  [[nodiscard]] TaskPtr take();
  /// Whether it was there; takes it out. Looks through its lane.
  bool erase(const detail::TaskCall& task);
  /// All of one lane, which are taken out.
  [[nodiscard]] std::vector<TaskPtr> take_lane(std::size_t lane);
  /// All of them, which are taken out.
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

}  // namespace drover
