// drover/pool/task_options.hpp: how a task is to be run.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

namespace drover {

/// What happens to a task whose worker dies.
class Retry {
 public:
  /// Never given to another worker, even if it had not begun.
  [[nodiscard]] static constexpr Retry never() noexcept { return {0, false}; }
  /// Given to another worker if it had not begun; one that had begun fails.
  [[nodiscard]] static constexpr Retry if_not_started() noexcept { return {0, true}; }
  /// Begun again at most so many times; for tasks that may run twice. PoolOptions::quarantine_after bounds it too.
  [[nodiscard]] static constexpr Retry times(int count) noexcept { return {count, true}; }

  /// How often it may be begun again.
  [[nodiscard]] constexpr int count() const noexcept { return count_; }
  /// Whether it is given to another worker if it had not begun.
  [[nodiscard]] constexpr bool is_moved() const noexcept { return is_moved_; }

 private:
  constexpr Retry(int count, bool is_moved) noexcept : count_(count), is_moved_(is_moved) {}
  int count_;
  bool is_moved_;
};

/// How a task is to be run.
struct TaskOptions {
  int priority = 0;                                         ///< higher ones first; equal ones in the order they came
  Retry retry = Retry::if_not_started();                    ///< if its worker dies
  std::chrono::nanoseconds timeout{0};                      ///< from its beginning in the worker; 0: none
  std::chrono::nanoseconds grace{std::chrono::seconds(1)};  ///< from the interrupt after `timeout` to the kill
  std::optional<std::size_t> worker;                        ///< the only worker that may run it, by its number
  /// Whether its tensors on devices may be copied to the device of an idle worker where that takes less time than
  /// waiting for a worker of theirs. For tasks that write in none of them: what is written in a copy is lost.
  bool may_relocate = false;
};

}  // namespace drover
