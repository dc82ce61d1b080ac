// python/bindings/calls.hpp: the tasks of one call of map, imap or apply in Python.
#pragma once

#include <atomic>
#include <cstddef>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "drover/base/mutex.hpp"
#include "drover/pool/pool.hpp"
#include "python_task.hpp"
#include "support.hpp"

namespace drover::python {

/// Counts the tasks of one call, for threads that wait for them. Results arrive on a thread of the pool, which takes
/// the GIL only to run a callback.
class Group {
 public:
  /// `title`: the name of the function. Unless ordered, records the order in which tasks finish.
  Group(std::string title, bool is_ordered) : title_(std::move(title)), is_ordered_(is_ordered) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();

  /// Records that a task is done, and that its `bytes` are no longer in flight.
  void finish(std::size_t index, bool is_good, std::size_t bytes) DROVER_EXCLUDES(mutex_);
  /// Counts tasks and their bytes. Requires: before they are submitted.
  void add(std::size_t tasks, std::size_t bytes) DROVER_EXCLUDES(mutex_);
  /// No more tasks follow. Calls `callback`, with the GIL, once all are done: at once if they are.
  void close(nb::object callback) DROVER_EXCLUDES(mutex_);

  /// Waits until `count` tasks are done; false at the deadline.
  bool wait_done(std::size_t count, Deadline deadline) DROVER_EXCLUDES(mutex_);
  /// The index of the next task to finish; nullopt at the deadline. Requires: not ordered.
  std::optional<std::size_t> wait_next(Deadline deadline) DROVER_EXCLUDES(mutex_);

  [[nodiscard]] const std::string& title() const noexcept { return title_; }
  [[nodiscard]] std::size_t submitted() const noexcept { return submitted_; }
  [[nodiscard]] std::size_t done() const noexcept { return done_; }
  [[nodiscard]] std::size_t in_flight() const noexcept { return submitted_ - done_; }
  [[nodiscard]] std::size_t bytes_in_flight() const noexcept { return bytes_; }
  /// Whether no task has failed so far, and no result has tensors.
  [[nodiscard]] bool is_good() const noexcept { return is_good_; }

 private:
  static void run(nb::object& callback) noexcept;

  const std::string title_;
  const bool is_ordered_;
  std::atomic<std::size_t> submitted_{0};
  std::atomic<std::size_t> done_{0};
  std::atomic<std::size_t> bytes_{0};
  std::atomic<bool> is_good_{true};
  Mutex mutex_;
  ConditionVariable changed_;
  std::size_t wake_at_ DROVER_GUARDED_BY(mutex_) = std::numeric_limits<std::size_t>::max();  // least done_ to wake at
  std::list<std::size_t> arrivals_ DROVER_GUARDED_BY(mutex_);  // an empty deque would allocate
  bool is_closed_ DROVER_GUARDED_BY(mutex_) = false;
  nb::object callback_ DROVER_GUARDED_BY(mutex_);
};

/// A task that runs a Python function.
class PythonCall final : public detail::FutureState, public detail::TaskCall {
 public:
  /// `is_plain`: whether its argument is, and lies in the message; see plain.hpp.
  PythonCall(Encoder arguments, bool is_plain, const TaskOptions& options, std::shared_ptr<Group> group,
             std::size_t index);

  void deliver(Decoder& from) override;
  void refuse(std::exception_ptr error) override;
  [[nodiscard]] bool is_over() const noexcept override { return is_done(); }
  bool cancel() override;
  [[nodiscard]] std::string describe() const override { return "the result of " + describe_call(); }
  [[nodiscard]] std::string describe_call() const override;

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Requires: done without an error.
  [[nodiscard]] Answer& answer() noexcept { return answer_; }
  /// Throws the error of the call, with its arguments as Python shows them. Requires: the GIL, and done with an
  /// error.
  [[noreturn]] void rethrow() const;

 private:
  // The arguments of a lost call, which its error shows as bytes.
  struct Shown {
    std::string text;      // as the error shows them
    std::string function;  // empty unless the argument is plain
    std::string payload;
  };
  [[nodiscard]] std::unique_ptr<Shown> find_shown(const std::exception_ptr& error) const noexcept;

  bool is_plain_;
  Answer answer_;
  std::unique_ptr<Shown> shown_;
  std::shared_ptr<Group> group_;  // shared with Calls, which may go first
  std::size_t index_;
  std::size_t bytes_;
};

/// The function that all tasks of a call run, with their options.
struct CalledFunction {
  std::string bytes;
  std::vector<Tensor> tensors;
  std::string title;
  TaskOptions options;
};

/// The tasks of one call, in order. Guarded by the GIL. Tasks may outlive it.
class Calls {
 public:
  Calls(const std::shared_ptr<Pool>& pool, CalledFunction function, bool is_ordered);
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  ~Calls();

  /// Submits one task.
  void submit(nb::handle argument);
  /// Sets the iterator from which `feed` takes arguments.
  void set_items(nb::object iterator) { items_ = std::move(iterator); }
  /// Submits tasks until enough are in flight (all of them, unless bounded); true once the items are exhausted.
  /// Raises the errors of the iterator and of pickling after submitting the items before them; the items are
  /// exhausted then. Throws `Errc::cancelled` if `cancel` came before the end.
  bool feed(bool is_bounded);
  void close(nb::object callback) { group_->close(std::move(callback)); }

  /// Waits until `feed` can submit more.
  void wait_room();
  bool wait_all(const Timeout& timeout);
  bool wait_one(std::size_t index, const Timeout& timeout);
  std::optional<std::size_t> wait_next(const Timeout& timeout);

  /// Takes a result: bytes if it is good and has no tensors, otherwise (is_error, payload, tensors). Raises the
  /// pool's error. Requires: done, and not taken before.
  nb::object take(std::size_t index);
  /// Takes all results. Requires: is_good().
  nb::list take_all();
  /// Cancels the tasks that have not started; true if those are all. Another thread may be in `feed`.
  bool cancel();

  [[nodiscard]] std::size_t size() const noexcept { return first_ + calls_.size(); }
  [[nodiscard]] bool is_done(std::size_t index) const { return at(index)->is_done(); }
  /// Whether a worker is running the task.
  [[nodiscard]] bool is_running(std::size_t index) const;
  [[nodiscard]] bool is_exhausted() const noexcept { return !items_.is_valid(); }
  [[nodiscard]] const Group& group() const noexcept { return *group_; }

 private:
  using CallPtr = std::shared_ptr<PythonCall>;
  [[nodiscard]] const CallPtr& at(std::size_t index) const;
  void drop_taken() noexcept;
  [[nodiscard]] CallPtr make(nb::handle argument);
  void name_argument(const nb::python_error& error) const;
  [[nodiscard]] bool has_room() const noexcept;
  [[nodiscard]] bool collect_some(std::vector<CallPtr>& made);
  std::exception_ptr start(std::vector<CallPtr>& made);  // returns the last refusal, or null
  void drop_items() noexcept;

  std::weak_ptr<Pool> pool_;
  Memory memory_;  // for long arguments
  CalledFunction function_;
  std::shared_ptr<Group> group_;
  std::size_t workers_;
  std::size_t first_ = 0;       // results before this index were taken and dropped
  std::size_t taken_ = 0;       // results behind it that were taken, and are null
  std::vector<CallPtr> calls_;  // from index first_ on; shared with the pool
  nb::object items_;
  std::atomic<bool> is_cut_{false};      // cancelled while there were items
  std::atomic<std::size_t> started_{0};  // tasks before this index were submitted or refused
};

}  // namespace drover::python
