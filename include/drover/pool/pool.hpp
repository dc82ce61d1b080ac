// drover/pool/pool.hpp: a pool of worker processes.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "drover/pool/future.hpp"
#include "drover/pool/results.hpp"
#include "drover/pool/task.hpp"
#include "drover/pool/worker_plan.hpp"
#include "drover/session/process.hpp"
#include "drover/session/session.hpp"
#include "drover/tensor/memory.hpp"

namespace drover::pool {
class PoolCore;
}  // namespace drover::pool

namespace drover {

/// A task with its arguments, which a pool runs when a worker starts or ends.
class Call {
 public:
  /// Does nothing.
  Call() = default;
  /// A task without arguments.
  template <class Result>
  Call(const Task<Result()>& task)
      : task_(&task.registered()) {}  // NOLINT(google-explicit-constructor): .init = load
  /// `Call(load, "model.bin")`.
  template <class Result, class... Arguments, class First, class... Given>
  Call(const Task<Result(Arguments...)>& task, First&& first, Given&&... more) {
    task_ = &task.registered();  // NOLINT(cppcoreguidelines-prefer-member-initializer): doxygen takes one for members
    // NOLINTNEXTLINE(cppcoreguidelines-prefer-member-initializer): as above
    arguments_ = task.encode(std::forward<First>(first), std::forward<Given>(more)...);
  }

  /// Whether it has a task.
  [[nodiscard]] bool is_open() const noexcept { return task_ != nullptr; }
  /// The task. Throws `Errc::invalid_argument` unless `is_open`.
  [[nodiscard]] const RegisteredTask& task() const {
    if (task_ == nullptr) detail::fail_empty();
    return *task_;
  }
  /// Its arguments.
  [[nodiscard]] const Encoder& arguments() const noexcept { return arguments_; }

 private:
  const RegisteredTask* task_ = nullptr;
  Encoder arguments_;
};

/// How a pool behaves.
struct PoolOptions {
  std::string name;                                ///< shown in reports; empty: "pool"
  Call init;                                       ///< run by every worker before its first task; see this_worker()
  Call teardown;                                   ///< run by every worker that exits normally
  TaskOptions task;                                ///< for tasks submitted without options
  bool opens_device = true;                        ///< a worker opens its device before it is ready, not at first use
  bool batching = true;                            ///< send tiny tasks together
  int quarantine_after = 2;                        ///< do not retry a task that killed this many workers; 0: no limit
  std::uint64_t recycle_after = 0;                 ///< replace a worker after this many tasks; 0: never
  std::uint64_t recycle_memory = 0;                ///< replace a worker that has more bytes of host memory; 0: never
  Duration idle_limit;                             ///< stop workers after this time without a task; 0: never
  Duration start_limit = std::chrono::minutes(1);  ///< kill a worker that takes longer to start or exit; 0: never
  Duration stall_report_after =
      std::chrono::minutes(1);                      ///< log a report when no task finishes for this long; 0: never
  bool handles_interrupts = true;                   ///< Ctrl-C ends the pool's work; see docs/pool.md
  WorkerOutput output = WorkerOutput::forwarded();  ///< where the output of workers goes
};

/// What a pool has done so far.
struct PoolStatistics {
  std::uint64_t pending = 0;    ///< tasks not sent to a worker yet
  std::uint64_t in_flight = 0;  ///< tasks sent to workers
  std::uint64_t finished = 0;   ///< tasks with a result or an error
  std::uint64_t failed = 0;     ///< tasks with an error
  std::uint64_t retried = 0;    ///< retries of tasks that had begun
  std::uint64_t restarts = 0;   ///< workers that were replaced
  std::uint64_t moved = 0;      ///< tasks moved from a busy worker to an idle one
  std::uint64_t relocated = 0;  ///< tasks that ran on another device, with copies of their tensors
};

/// A worker as its pool sees it.
struct PoolWorkerInfo {
  std::size_t index = 0;     ///< its number
  std::string name;          ///< "worker-2"
  pid_t pid = 0;             ///< 0 while there is no process
  std::string place;         ///< "cuda:1" as this process numbers devices, or "cpu"
  std::string device_uuid;   ///< of the device it has, as the worker reports it; empty without one, or until ready
  bool is_ready = false;     ///< whether it takes tasks
  std::uint64_t done = 0;    ///< tasks finished by all processes with this number
  std::uint32_t starts = 0;  ///< processes that have had this number
  std::uint64_t task = 0;    ///< number of the task that it runs; 0: none
};

/// Worker processes of this program, each with its device, that run tasks. A worker that dies is replaced; only the
/// task it ran is lost. Thread-safe. In a forked child every call throws `Errc::forked`. See docs/pool.md.
///
/// Destruction cancels tasks that have not begun, and gives running tasks a second to finish. `join` waits for all
/// tasks instead.
///
/// ```
/// #include <iostream>
///
/// #include <drover/drover.hpp>
///
/// const auto square = drover::task("square", [](int x) { return x * x; });  // in every process of the program
///
/// int main(int argc, char** argv) {
///   drover::init(argc, argv);
///   drover::Pool pool({.workers = 2, .devices = "none"});
///   std::cout << pool.submit(square, 7).get() << '\n';  // 49
///   for (const int y : pool.map(square, std::vector{1, 2, 3})) std::cout << y << ' ';  // 1 4 9
/// }
/// ```
class Pool {
 public:
  /// Starts workers in a new session, without waiting for them. Throws as `plan_workers` and `Session::start`.
  explicit Pool(const WorkerPlanOptions& workers = {}, const PoolOptions& options = {});
  /// Starts workers in an existing session.
  Pool(const Session& session, const WorkerPlanOptions& workers, const PoolOptions& options = {});
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  /// Runs a task in some worker. Throws `Errc::invalid_argument` if no worker can run it, or a tensor is of another
  /// session or on a device without a worker, and `Errc::cancelled` if the pool has ended.
  template <class Result, class... Arguments, class... Given>
  Future<Result> submit(const Task<Result(Arguments...)>& task, Given&&... arguments) {
    return submit(options().task, task, std::forward<Given>(arguments)...);
  }
  /// Submits a task with its own options.
  template <class Result, class... Arguments, class... Given>
  Future<Result> submit(const TaskOptions& how, const Task<Result(Arguments...)>& task, Given&&... arguments) {
    static_assert(sizeof...(Given) == sizeof...(Arguments), "a task is given as many arguments as it takes");
    return start<Result>(task.registered(), task.encode(std::forward<Given>(arguments)...), how);
  }
  /// Submits a task by its name: `pool.submit<double>("sum", tensor)`. The types must be exactly its own. Throws
  /// `Errc::not_found` for an unknown name, `Errc::invalid_argument` for other types.
  template <class Result, class... Given>
  Future<Result> submit(const std::string& name, const Given&... arguments) {
    const RegisteredTask* const found = find(name, detail::signature_of<Result, std::decay_t<Given>...>());
    return start<Result>(*found, Task<Result(std::decay_t<Given>...)>::encode(arguments...), options().task);
  }
  /// Submits a call that handles its result itself, for bindings to other languages.
  void submit(const std::shared_ptr<detail::TaskCall>& call) { start_call(call); }
  /// Runs a task in every worker, and returns their futures in the order of the workers.
  template <class Result, class... Arguments, class... Given>
  std::vector<Future<Result>> broadcast(const Task<Result(Arguments...)>& task, const Given&... arguments) {
    std::vector<Future<Result>> futures;
    TaskOptions how = options().task;
    for (const std::size_t number : numbers()) {
      how.worker = number;
      futures.push_back(submit(how, task, arguments...));
    }
    return futures;
  }

  /// Runs a task for each item and returns the results, in order. If a task fails, throws its error and cancels the
  /// rest. Up to MapOptions::in_flight tasks are in flight, and items are taken only as they are submitted.
  template <class Result, class Argument, std::ranges::input_range Items>
  auto map(const Task<Result(Argument)>& task, Items&& items, const MapOptions& how = {}) {
    return all_of(imap(task, std::forward<Items>(items), how));
  }
  /// Like `map`, for items that are tuples of arguments.
  template <class Result, class... Arguments, std::ranges::input_range Items>
  auto starmap(const Task<Result(Arguments...)>& task, Items&& items, const MapOptions& how = {}) {
    return all_of(results_of(task, std::forward<Items>(items), how, [](auto&& run, auto&& item) {
      return std::apply(run, std::forward<decltype(item)>(item));
    }));
  }
  /// Yields the results one by one, in order, and submits more tasks as results are taken.
  template <class Result, class Argument, std::ranges::input_range Items>
  Results<Result> imap(const Task<Result(Argument)>& task, Items&& items, const MapOptions& how = {}) {
    return results_of(task, std::forward<Items>(items), how,
                      [](auto&& run, auto&& item) { return run(std::forward<decltype(item)>(item)); });
  }
  /// Like `imap`, with results in the order of completion.
  template <class Result, class Argument, std::ranges::input_range Items>
  Results<Result> imap_unordered(const Task<Result(Argument)>& task, Items&& items, MapOptions how = {}) {
    how.ordered = false;
    return imap(task, std::forward<Items>(items), how);
  }

  /// Number of workers, including those that still start.
  [[nodiscard]] std::size_t size() const;
  /// Numbers of the workers, for TaskOptions::worker. There may be gaps, because the pool gives up workers that
  /// cannot start.
  [[nodiscard]] std::vector<std::size_t> numbers() const;
  /// Adds workers, placed as the first ones, or ends some, which finish their task. Throws as the constructor.
  void resize(std::size_t workers);
  /// Waits until every worker is ready. Throws `Errc::peer_lost` with the reason if they cannot start.
  WaitResult wait_ready(Deadline deadline = Deadline::never());
  /// Closes the pool, waits until all tasks are done, and ends the workers.
  WaitResult join(Deadline deadline = Deadline::never());
  /// Ends the pool: cancels tasks that have not begun, and kills workers that run one for longer than `grace`.
  void end(Duration grace = std::chrono::seconds(1));

  /// The options of the pool.
  [[nodiscard]] const PoolOptions& options() const noexcept;
  /// The session of its workers.
  [[nodiscard]] const Session& session() const noexcept;
  /// Allocates tensors that can be arguments of tasks.
  [[nodiscard]] const Memory& memory() const noexcept;
  /// A snapshot of its workers.
  [[nodiscard]] std::vector<PoolWorkerInfo> workers() const;
  /// A snapshot of its counters.
  [[nodiscard]] PoolStatistics statistics() const;
  /// What each worker does and what it waits for, with the stacks of workers in the same state for 30 s, or for
  /// `stall_report_after` if that is less. A stalled pool logs this report itself.
  [[nodiscard]] std::string stall_report() const;

 private:
  template <class Result>
  Future<Result> start(const RegisteredTask& task, Encoder arguments, const TaskOptions& how) {
    auto call = std::make_shared<detail::TaskFuture<Result>>(task, std::move(arguments), how);
    start_call(call);
    return Future<Result>(std::move(call));
  }

  template <class Result, class... Arguments, class Items, class Spread>
  Results<Result> results_of(const Task<Result(Arguments...)>& task, Items&& items, const MapOptions& how,
                             Spread spread) {
    const TaskOptions options = how.task.value_or(this->options().task);
    // NOLINTNEXTLINE(cppcoreguidelines-missing-std-forward): forwarded in the pack
    const auto run = [this, task, options]<class... Given>(Given&&... given) {
      return this->submit(options, task, std::forward<Given>(given)...);
    };
    const std::size_t total = detail::size_of(items);  // before the items may be moved
    return Results<Result>(
        detail::generate(std::views::all(std::forward<Items>(items)),
                         [run, spread](auto&& item) { return spread(run, std::forward<decltype(item)>(item)); }),
        how, total, how.in_flight != 0 ? how.in_flight : default_in_flight());
  }
  template <class Result>
  static auto all_of(Results<Result> results) {
    if constexpr (std::is_void_v<Result>) {
      while (results.skip()) {
      }
    } else {
      std::vector<Result> all;
      while (auto one = results.next()) all.push_back(std::move(*one));
      return all;
    }
  }

  [[nodiscard]] static const RegisteredTask* find(const std::string& name, const std::string& signature);
  [[nodiscard]] std::size_t default_in_flight() const;
  void start_call(const std::shared_ptr<detail::TaskCall>& call);

  std::shared_ptr<pool::PoolCore> core_;  // shared with unfinished tasks, which refer to it for cancel
};

}  // namespace drover
