// drover/pool/pool.hpp: workers that run tasks.
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

namespace drover {

/// A task with its arguments, to be run later or elsewhere: what a pool does at each worker's start and end.
class Call {
 public:
  /// Does nothing.
  Call() = default;
  /// A task without arguments, as it is.
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

  /// Whether it does something.
  [[nodiscard]] bool is_open() const noexcept { return task_ != nullptr; }
  /// What is called. Requires: is_open().
  [[nodiscard]] const RegisteredTask& task() const noexcept { return *task_; }
  /// With what.
  [[nodiscard]] const Encoder& arguments() const noexcept { return arguments_; }

 private:
  const RegisteredTask* task_ = nullptr;
  Encoder arguments_;
};

/// How a pool behaves.
struct PoolOptions {
  std::string name;  ///< for people; empty: "pool"
  Call init;         ///< run by every worker before its first task, with its device known; its state: this_worker()
  Call teardown;     ///< run by every worker that ends in peace
  TaskOptions task;  ///< for tasks that are submitted without options of their own
  bool opens_device = true;                 ///< a worker opens its device before it is ready, not when it needs it
  bool batching = true;                     ///< send tiny tasks together
  int quarantine_after = 2;                 ///< a task that killed so many workers is not begun again; 0: no
  std::uint64_t recycle_after = 0;          ///< a worker is replaced after so many tasks; 0: never
  std::uint64_t recycle_memory = 0;         ///< or when it has so many bytes of host memory; 0: never
  std::chrono::milliseconds idle_limit{0};  ///< workers end when there was no task for so long; 0: never
  std::chrono::milliseconds start_limit{60000};  ///< one that is not ready, or not gone, by then is killed; 0: never
  std::chrono::milliseconds stall_report_after{60000};  ///< a report on standard error when nothing moves; 0: none
  bool handles_interrupts = true;                       ///< Ctrl-C ends the pool's work; see docs/pool.md
  WorkerOutput output = WorkerOutput::forwarded();      ///< where what workers print goes
};

/// What a pool has done so far.
struct PoolStatistics {
  std::uint64_t pending = 0;    ///< tasks no worker has yet
  std::uint64_t in_flight = 0;  ///< tasks that workers have
  std::uint64_t finished = 0;   ///< tasks with a result or an error
  std::uint64_t failed = 0;     ///< those with an error
  std::uint64_t retried = 0;    ///< times that a task was begun again
  std::uint64_t restarts = 0;   ///< workers that were replaced
  std::uint64_t moved = 0;      ///< tasks that were taken from a busy worker for an idle one
  std::uint64_t relocated = 0;  ///< tasks that ran on another device than their tensors', which were copied there
};

/// A worker as its pool sees it.
struct PoolWorkerInfo {
  std::size_t index = 0;  ///< its number
  std::string name;       ///< "worker-2"
  pid_t pid = 0;          ///< 0 while there is no process
  std::string place;      ///< "cuda:1" as this process numbers devices, or "cpu"
  std::string
      device_uuid;        ///< of the device it really got, as it says itself; empty without one or before it is ready
  bool is_ready = false;  ///< whether it takes tasks
  std::uint64_t done = 0;    ///< tasks it has finished, and those before it
  std::uint32_t starts = 0;  ///< processes that had this number
  std::uint64_t task = 0;    ///< the number of the task that it runs; 0: none
};

class PoolCore;

/// Workers that run tasks of this program in processes of their own, each with its device. A worker that dies is
/// replaced, and takes with it only the task it ran. Safe for all threads. In a forked child every call throws
/// `Errc::forked`. docs/pool.md says more.
///
/// Destruction ends it: tasks that have not begun are cancelled, those that run have a second to end. `join` waits
/// for all of them instead.
class Pool {
 public:
  /// Starts workers in a session of their own; does not wait for them. Throws what `plan_workers` and
  /// `Session::start` throw.
  explicit Pool(const WorkerPlanOptions& workers = {}, const PoolOptions& options = {});
  /// The same in a session that exists.
  Pool(const Session& session, const WorkerPlanOptions& workers, const PoolOptions& options = {});
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  /// Runs a task in some worker. Throws `Errc::invalid_argument` if that can never work: no worker of that number, or
  /// a tensor of another session or on a device that no worker has; `Errc::cancelled` if the pool has ended.
  template <class Result, class... Arguments, class... Given>
  Future<Result> submit(const Task<Result(Arguments...)>& task, Given&&... arguments) {
    return submit(options().task, task, std::forward<Given>(arguments)...);
  }
  /// The same in its own way.
  template <class Result, class... Arguments, class... Given>
  Future<Result> submit(const TaskOptions& how, const Task<Result(Arguments...)>& task, Given&&... arguments) {
    static_assert(sizeof...(Given) == sizeof...(Arguments), "a task is given as many arguments as it takes");
    return start<Result>(task.registered(), task.encode(std::forward<Given>(arguments)...), how);
  }
  /// A task that is known by its name only: `pool.submit<double>("sum", tensor)`. The types must be its own, exactly.
  /// Throws `Errc::not_found` if there is none of that name, `Errc::invalid_argument` if the types do not fit.
  template <class Result, class... Given>
  Future<Result> submit(const std::string& name, const Given&... arguments) {
    const RegisteredTask* const found = find(name, detail::signature_of<Result, std::decay_t<Given>...>());
    return start<Result>(*found, Task<Result(std::decay_t<Given>...)>::encode(arguments...), options().task);
  }
  /// A call that knows itself what to do with its result: for bindings to other languages. Throws as above.
  void submit(const std::shared_ptr<detail::TaskCall>& call) { start_call(call); }
  /// Runs a task in every worker; the results are in their order. Each has its own future.
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

  /// Runs a task for each item and gives all results, in order. If one fails, throws its error and cancels the rest.
  /// At most MapOptions::in_flight are under way at a time, and no more is taken from `items` before.
  template <class Result, class Argument, std::ranges::input_range Items>
  auto map(const Task<Result(Argument)>& task, Items&& items, const MapOptions& how = {}) {
    return all_of(imap(task, std::forward<Items>(items), how));
  }
  /// The same for items that are tuples of arguments.
  template <class Result, class... Arguments, std::ranges::input_range Items>
  auto starmap(const Task<Result(Arguments...)>& task, Items&& items, const MapOptions& how = {}) {
    return all_of(results_of(task, std::forward<Items>(items), how, [](auto&& run, auto&& item) {
      return std::apply(run, std::forward<decltype(item)>(item));
    }));
  }
  /// Results one by one, in order, as they are asked for; more tasks are begun as results are taken.
  template <class Result, class Argument, std::ranges::input_range Items>
  Results<Result> imap(const Task<Result(Argument)>& task, Items&& items, const MapOptions& how = {}) {
    return results_of(task, std::forward<Items>(items), how,
                      [](auto&& run, auto&& item) { return run(std::forward<decltype(item)>(item)); });
  }
  /// Results as they come.
  template <class Result, class Argument, std::ranges::input_range Items>
  Results<Result> imap_unordered(const Task<Result(Argument)>& task, Items&& items, MapOptions how = {}) {
    how.ordered = false;
    return imap(task, std::forward<Items>(items), how);
  }

  /// How many workers it has, or will have.
  [[nodiscard]] std::size_t size() const;
  /// Their numbers, for TaskOptions::worker; not always from 0 to size(), since a worker that cannot be started is
  /// given up.
  [[nodiscard]] std::vector<std::size_t> numbers() const;
  /// Adds or ends workers. Those that run a task finish it. Added ones are placed as the first ones were. Throws as
  /// the constructor.
  void resize(std::size_t workers);
  /// Waits until every worker is ready. Throws `Errc::peer_lost`, saying why, if they cannot be started.
  WaitResult wait_ready(Deadline deadline = Deadline::never());
  /// Takes no more tasks, waits until all are done, and ends the workers.
  WaitResult join(Deadline deadline = Deadline::never());
  /// Ends it now: cancels what has not begun, gives what runs `grace`, and kills it then.
  void end(std::chrono::milliseconds grace = std::chrono::seconds(1));

  /// As given.
  [[nodiscard]] const PoolOptions& options() const noexcept;
  /// In which its workers are participants.
  [[nodiscard]] const Session& session() const noexcept;
  /// To make tensors that tasks can be given.
  [[nodiscard]] const Memory& memory() const noexcept;
  /// Its workers now.
  [[nodiscard]] std::vector<PoolWorkerInfo> workers() const;
  /// What it has done.
  [[nodiscard]] PoolStatistics statistics() const;
  /// Who does what and who waits for whom, with stacks of those that are at it for `stall_report_after`, or 30 s;
  /// what is printed by itself when nothing moves for long.
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
    // NOLINTNEXTLINE(cppcoreguidelines-missing-std-forward): it is, in the pack
    const auto run = [this, task, options]<class... Given>(Given&&... given) {
      return this->submit(options, task, std::forward<Given>(given)...);
    };
    const std::size_t total = detail::size_of(items);  // before they may be moved
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

  std::shared_ptr<PoolCore> core_;  // shared: with its threads, and tasks that are not done find it
};

}  // namespace drover
