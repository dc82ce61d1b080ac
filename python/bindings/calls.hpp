// python/bindings/calls.hpp: tasks of one call of Python's map, imap or apply.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "drover/base/mutex.hpp"
#include "drover/pool/pool.hpp"
#include "python_task.hpp"
#include "support.hpp"

namespace drover::python {

/// What tasks of one call tell whoever waits for them. Results come in on a thread of the pool, which never waits for
/// the interpreter here, but for a callback.
class Group {
 public:
  /// Whether it matters which one is done first.
  explicit Group(bool is_ordered) : is_ordered_(is_ordered) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();

  /// A task is done. `bytes` are those that were under way with it.
  void note(std::size_t index, bool is_good, std::size_t bytes) DROVER_EXCLUDES(mutex_);
  /// So many tasks were submitted, with so many bytes; before they can be done.
  void add(std::size_t tasks, std::size_t bytes) DROVER_EXCLUDES(mutex_);
  /// There will be no more; `callback` is called, with the interpreter's lock, when all are done: now, if they are.
  void close(nb::object callback) DROVER_EXCLUDES(mutex_);

  /// Waits until so many are done; false at the deadline.
  bool wait_done(std::size_t count, Deadline deadline) DROVER_EXCLUDES(mutex_);
  /// The index of the next one that is done, if it matters; nothing at the deadline.
  std::optional<std::size_t> wait_next(Deadline deadline) DROVER_EXCLUDES(mutex_);

  [[nodiscard]] std::size_t submitted() const noexcept { return submitted_; }
  [[nodiscard]] std::size_t done() const noexcept { return done_; }
  [[nodiscard]] std::size_t under_way() const noexcept { return submitted_ - done_; }
  [[nodiscard]] std::size_t bytes_under_way() const noexcept { return bytes_; }
  /// Whether no task failed so far, and no result has tensors.
  [[nodiscard]] bool is_good() const noexcept { return is_good_; }

 private:
  static void tell(nb::object& callback) noexcept;

  const bool is_ordered_;
  std::atomic<std::size_t> submitted_{0};
  std::atomic<std::size_t> done_{0};
  std::atomic<std::size_t> bytes_{0};
  std::atomic<bool> is_good_{true};
  Mutex mutex_;
  ConditionVariable changed_;
  std::size_t wake_at_ DROVER_GUARDED_BY(mutex_) = std::numeric_limits<std::size_t>::max();  // of done_
  std::deque<std::size_t> arrivals_ DROVER_GUARDED_BY(mutex_);
  bool is_closed_ DROVER_GUARDED_BY(mutex_) = false;
  nb::object callback_ DROVER_GUARDED_BY(mutex_);
};

/// One task that runs a function of Python.
class PythonCall final : public detail::FutureState, public detail::TaskCall {
 public:
  PythonCall(Encoder arguments, const TaskOptions& options, std::shared_ptr<const std::string> title,
             std::shared_ptr<Group> group, std::size_t index);

  void deliver(Decoder& from) override;
  void refuse(std::exception_ptr error) override;
  [[nodiscard]] bool is_over() const noexcept override { return is_done(); }
  bool cancel() override;
  [[nodiscard]] std::string describe() const override { return "the result of " + describe_call(); }
  [[nodiscard]] std::string describe_call() const override;

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Requires: done, without an error.
  [[nodiscard]] Answer& answer() noexcept { return answer_; }

 private:
  Answer answer_;
  std::shared_ptr<const std::string> title_;  // shared: by all tasks of a call
  std::shared_ptr<Group> group_;              // shared: with whoever waits
  std::size_t index_;
  std::size_t bytes_;
};

/// Which function all tasks of a call run, and how.
struct CalledFunction {
  std::string bytes;
  std::vector<Tensor> tensors;
  std::string title;
  TaskOptions options;
};

/// The tasks of one call, in order. Belongs to whoever has the interpreter's lock. Tasks outlive it.
class Calls {
 public:
  Calls(const std::shared_ptr<Pool>& pool, CalledFunction function, bool is_ordered);
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  ~Calls();

  /// Submits a task for an object.
  void submit(nb::handle argument);
  /// From where objects are taken by `feed`.
  void set_items(nb::object iterator) { items_ = std::move(iterator); }
  /// Submits tasks until enough are under way, or there is no more: true then. Raises what the iterator and pickling
  /// raise, after what came before is submitted; then there is no more. Without a bound, all that there is. Throws
  /// `Errc::cancelled` if `cancel` came before the end.
  bool feed(bool is_bounded);
  void close(nb::object callback) { group_->close(std::move(callback)); }

  /// Waits until more can be fed.
  void wait_room();
  bool wait_all(const Timeout& timeout);
  bool wait_one(std::size_t index, const Timeout& timeout);
  std::optional<std::size_t> wait_next(const Timeout& timeout);

  /// Bytes, if it is a good result without tensors; else (is_error, payload, tensors). Raises what the pool has to
  /// say. Requires: done, and not taken before.
  nb::object take(std::size_t index);
  /// All of them, if is_good().
  nb::list take_all();
  /// Gives up what has not begun; true if that is so for all. Another thread may be in `feed`.
  bool cancel();

  [[nodiscard]] std::size_t size() const noexcept { return first_ + calls_.size(); }
  [[nodiscard]] bool is_done(std::size_t index) const { return at(index)->is_done(); }
  /// Whether a worker has begun it and is not done.
  [[nodiscard]] bool is_running(std::size_t index) const;
  [[nodiscard]] bool is_exhausted() const noexcept { return !items_.is_valid(); }
  [[nodiscard]] const Group& group() const noexcept { return *group_; }

 private:
  using CallPtr = std::shared_ptr<PythonCall>;
  [[nodiscard]] const CallPtr& at(std::size_t index) const;
  [[nodiscard]] CallPtr make(nb::handle argument);
  [[nodiscard]] bool has_room() const noexcept;
  [[nodiscard]] bool collect_some(std::vector<CallPtr>& made);
  std::exception_ptr start(std::vector<CallPtr>& made);  // what the last one was refused with, if one was
  void drop_items() noexcept;

  std::weak_ptr<Pool> pool_;
  CalledFunction function_;
  std::shared_ptr<const std::string> title_;
  std::shared_ptr<Group> group_;
  std::size_t workers_;
  std::size_t first_ = 0;      // those before it were taken
  std::deque<CallPtr> calls_;  // from the first on; shared: with the pool
  nb::object items_;
  std::atomic<bool> is_cut_{false};      // cancelled while there were items: no more is submitted
  std::atomic<std::size_t> started_{0};  // those before it were submitted, or refused
};

}  // namespace drover::python
