// pool/run/pool_core.hpp: what a pool is made of.
//
// Three kinds of threads: those of the program, which submit; the collector, which takes results in, ends futures and
// sends workers their next tasks; the warden, which owns the workers' processes, starts them, sees them die and kills
// them. One mutex guards everything but the processes, which the warden alone touches.
//
// A task is in one place at any time: pending (pool/pending.hpp), in a batch of a slot, or done. A worker says each
// result in a message of its own, in the order of its tasks. When one dies, the warden puts a message behind
// everything the worker said; when the collector comes to that, it knows what came back, and the claim word
// (pool/claim.hpp) tells which of the rest had begun.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "drover/base/mutex.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/pool/pool.hpp"
#include "pool/run/pending.hpp"
#include "pool/run/wire.hpp"
#include "pool/run/worker_slot.hpp"
#include "pool/watch/board.hpp"

namespace drover {

class Mps;

/// The error of a task that took too long.
[[nodiscard]] std::exception_ptr timeout_error(const detail::TaskCall& task, const std::string& what);

/// A task whose worker is to be killed, since it takes too long.
struct OverdueTask {
  std::size_t worker = 0;
  std::uint64_t task = 0;
};

class PoolCore : public std::enable_shared_from_this<PoolCore> {
 public:
  PoolCore(const Session& session, const WorkerPlanOptions& workers, const PoolOptions& options);
  ~PoolCore();
  PoolCore(const PoolCore&) = delete;
  PoolCore& operator=(const PoolCore&) = delete;

  /// Starts the threads; once.
  void start();

  void submit(const TaskPtr& task) DROVER_EXCLUDES(mutex_);
  /// As Future::cancel.
  bool cancel(detail::TaskCall& task, detail::FutureState& state) DROVER_EXCLUDES(mutex_);
  void resize(std::size_t workers) DROVER_EXCLUDES(mutex_);
  WaitResult wait_ready(Deadline deadline) DROVER_EXCLUDES(mutex_);
  WaitResult join(Deadline deadline) DROVER_EXCLUDES(mutex_);
  void end(std::chrono::milliseconds grace) noexcept DROVER_EXCLUDES(mutex_);
  /// What Ctrl-C does first: nothing new begins, what runs goes on.
  void interrupt() DROVER_EXCLUDES(mutex_);

  [[nodiscard]] std::size_t size() const DROVER_EXCLUDES(mutex_);
  /// Of workers that it has, or will have.
  [[nodiscard]] std::vector<std::size_t> numbers() const DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<PoolWorkerInfo> workers() const DROVER_EXCLUDES(mutex_);
  [[nodiscard]] PoolStatistics statistics() const DROVER_EXCLUDES(mutex_);
  [[nodiscard]] const PoolOptions& options() const noexcept { return options_; }
  [[nodiscard]] const Session& session() const noexcept { return session_; }
  [[nodiscard]] const Memory& memory() const noexcept { return memory_; }
  /// For people: who does what and who waits for whom.
  [[nodiscard]] std::string stall_text() const DROVER_EXCLUDES(mutex_);
  [[nodiscard]] const Board& board() const noexcept { return board_.board(); }
  [[nodiscard]] int wake_fd() const noexcept { return wake_.get(); }

 private:
  // Errors that are told to futures when the mutex is free.
  struct Refusal {
    TaskPtr task;
    std::exception_ptr error;
  };
  using Refusals = std::vector<Refusal>;
  // A result that came for a task.
  struct Arrival {
    TaskPtr task;
    Message* message = nullptr;
    std::string worker;
  };

  // How the collector waits for results.
  struct CollectPlan {
    std::chrono::nanoseconds patience{};  // for the first
    bool gathers = false;                 // whether to let them come for a moment
  };

  // pool_core.cpp: slots and lanes.
  void add_slots(const std::vector<WorkerPlan>& plans, std::size_t count) DROVER_REQUIRES(mutex_);
  [[nodiscard]] std::size_t lane_of(const Place& place) DROVER_REQUIRES(mutex_);
  [[nodiscard]] std::size_t known_slots() const DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<pid_t> own_processes() const DROVER_EXCLUDES(mutex_);
  void choose_lane(detail::TaskCall& task) const DROVER_REQUIRES(mutex_);
  void cancel_pending(const char* why) DROVER_REQUIRES(mutex_);
  void begin_ending(Clock::time_point kill_at) DROVER_REQUIRES(mutex_);
  void check_open() const DROVER_REQUIRES(mutex_);
  void check_not_forked() const;
  [[nodiscard]] bool is_served(std::size_t lane) const DROVER_REQUIRES(mutex_);
  void refuse_unserved() DROVER_REQUIRES(mutex_);
  void stop_collecting() noexcept;
  void refuse_all(const Refusals& refusals) noexcept DROVER_EXCLUDES(mutex_);
  [[nodiscard]] Refusals take_refusals() DROVER_REQUIRES(mutex_);
  void refuse(TaskPtr task, std::exception_ptr error) DROVER_REQUIRES(mutex_);
  void tell_board() DROVER_REQUIRES(mutex_);
  void wake_warden() noexcept;

  // dispatch.cpp: who gets what.
  void dispatch() DROVER_REQUIRES(mutex_);
  void refill(WorkerSlot& slot, std::size_t most_batches) DROVER_REQUIRES(mutex_);
  [[nodiscard]] bool may_take_over(const WorkerSlot& idle, const WorkerSlot& from) const DROVER_REQUIRES(mutex_);
  [[nodiscard]] WorkerSlot* find_overburdened(const WorkerSlot& idle) DROVER_REQUIRES(mutex_);
  bool send_batch(WorkerSlot& slot, std::span<const std::size_t> lanes, std::size_t most) DROVER_REQUIRES(mutex_);
  bool add_task(const WorkerSlot& slot, std::span<const std::size_t> lanes, Batch& batch) DROVER_REQUIRES(mutex_);
  [[nodiscard]] bool is_tiny(const RegisteredTask& task) const DROVER_REQUIRES(mutex_);
  [[nodiscard]] bool is_collected_soon(const RegisteredTask& task) const DROVER_REQUIRES(mutex_);
  [[nodiscard]] std::size_t depth_for(const RegisteredTask& task) const DROVER_REQUIRES(mutex_);
  [[nodiscard]] const TaskPtr* first_for(const WorkerSlot& slot) DROVER_REQUIRES(mutex_);
  void rebalance() DROVER_REQUIRES(mutex_);
  std::size_t take_back_from(WorkerSlot& slot) DROVER_REQUIRES(mutex_);
  void tell_to_end(WorkerSlot& slot) DROVER_REQUIRES(mutex_);

  // relocate.cpp: tasks for workers of other devices.
  void relocate() DROVER_REQUIRES(mutex_);
  [[nodiscard]] std::size_t find_relocation(const WorkerSlot& idle) DROVER_REQUIRES(mutex_);
  [[nodiscard]] bool is_worth_bringing(const detail::TaskCall& task, const WorkerSlot& idle) const
      DROVER_REQUIRES(mutex_);
  void keep_home(const WorkerSlot& slot, const TaskPtr& task) DROVER_REQUIRES(mutex_);

  // collect.cpp: results.
  void collect() noexcept;
  bool collect_some(std::vector<Message>& messages);
  void match(Message& message, std::vector<Arrival>& arrivals) DROVER_REQUIRES(mutex_);
  [[nodiscard]] static TaskPtr take_front(WorkerSlot& slot, const ResultHeader& header);
  [[nodiscard]] TaskPtr finish_front(WorkerSlot& slot, const ResultHeader& header) DROVER_REQUIRES(mutex_);
  void learn_time(const WorkerSlot& slot, const detail::TaskCall& task, std::uint64_t nanoseconds)
      DROVER_REQUIRES(mutex_);
  void complete(Arrival& arrival);
  [[nodiscard]] CollectPlan plan_collecting() DROVER_EXCLUDES(mutex_);
  static void gather();
  void break_down(const std::exception_ptr& why) noexcept DROVER_EXCLUDES(mutex_);

  // healing.cpp: deaths.
  void handle_death(WorkerSlot& slot, const std::string& how) DROVER_REQUIRES(mutex_);
  void handle_failed_start(WorkerSlot& slot, const std::string& how) DROVER_REQUIRES(mutex_);
  [[nodiscard]] bool may_wait(const detail::TaskCall& task) const DROVER_REQUIRES(mutex_);
  void lose_begun(const WorkerSlot& slot, const TaskPtr& task, const std::string& how) DROVER_REQUIRES(mutex_);
  void lose_waiting(const WorkerSlot& slot, const TaskPtr& task, const std::string& how) DROVER_REQUIRES(mutex_);

  // warden.cpp: processes.
  void guard() noexcept;
  bool guard_once();
  void start_processes();
  void start_process(std::size_t index);
  void wait_for_events(Clock::time_point until);
  void bury_dead();
  void say_death(std::size_t index, std::uint32_t starts, const std::string& how);
  [[nodiscard]] Clock::time_point enforce_limits();
  void enforce_task_limit(WorkerSlot& slot, std::uint64_t now, std::uint64_t& next, std::vector<OverdueTask>& overdue)
      DROVER_REQUIRES(mutex_);
  void end_overdue(const std::vector<OverdueTask>& overdue) DROVER_EXCLUDES(mutex_);
  void watch_for_stalls(Clock::time_point now);
  void kill(std::size_t index) noexcept;

  const PoolOptions options_;
  const WorkerPlanOptions plan_options_;
  Session session_;
  Memory memory_;
  OwnBoard board_;
  SlabId board_id_{};
  Queue results_;
  Fd wake_;  // an eventfd: the warden has something to do
  std::unique_ptr<Mps> mps_;

  mutable Mutex mutex_;
  ConditionVariable changed_;  // workers became ready, all is done, the pool broke
  std::vector<std::unique_ptr<WorkerSlot>> slots_ DROVER_GUARDED_BY(mutex_);
  std::map<Place, std::size_t> device_lanes_ DROVER_GUARDED_BY(mutex_);
  PendingTasks pending_ DROVER_GUARDED_BY(mutex_);
  Refusals refusals_ DROVER_GUARDED_BY(mutex_);
  WireWriter writer_ DROVER_GUARDED_BY(mutex_);
  std::vector<double> mean_run_ DROVER_GUARDED_BY(mutex_);   // nanoseconds, by task index; 0: not known
  std::vector<double> lane_mean_ DROVER_GUARDED_BY(mutex_);  // the same by lane, of tasks whose tensors stayed
  std::uint64_t last_number_ DROVER_GUARDED_BY(mutex_) = 0;
  std::uint64_t unfinished_ DROVER_GUARDED_BY(mutex_) = 0;  // tasks whose futures are not done
  PoolStatistics statistics_ DROVER_GUARDED_BY(mutex_);
  Clock::time_point last_move_ DROVER_GUARDED_BY(mutex_) = Clock::now();
  Clock::time_point reported_stall_ DROVER_GUARDED_BY(mutex_);
  std::exception_ptr broken_ DROVER_GUARDED_BY(mutex_);
  std::string closed_why_ DROVER_GUARDED_BY(mutex_);  // empty while tasks are taken
  bool is_ending_ DROVER_GUARDED_BY(mutex_) = false;
  bool is_asleep_ DROVER_GUARDED_BY(mutex_) = false;
  Clock::time_point kill_at_ DROVER_GUARDED_BY(mutex_) = Clock::time_point::max();

  std::atomic<bool> stops_collecting_{false};
  std::map<std::size_t, Process> processes_;  // the warden's, by slot
  std::thread collector_;
  std::thread warden_;
  Mutex ending_;  // one thread at a time ends the pool
};

}  // namespace drover
