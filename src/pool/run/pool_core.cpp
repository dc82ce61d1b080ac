#include "pool/run/pool_core.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "pool/plan/mps.hpp"
#include "pool/plan/worker_plan_users.hpp"
#include "pool/run/ctrl_c.hpp"
#include "pool/run/relocation_rule.hpp"
#include "pool/run/task_table.hpp"
#include "pool/watch/stall_report.hpp"

namespace drover {
namespace {

constexpr QueueOptions kResults{.capacity = 4096, .bytes = std::uint64_t{64} << 20U, .waits_alone = true};
constexpr std::chrono::seconds kEndPatience{30};

Fd make_wake_fd() {
  Fd fd(sys::call("eventfd", ::eventfd, 0U, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.is_open()) throw_errno("eventfd", "of a pool");
  return fd;
}

std::unique_ptr<Mps> start_mps(const std::vector<WorkerPlan>& plans, const WorkerPlanOptions& wanted) {
  MpsOptions options{.percentage = wanted.mps_percentage};
  for (const auto& plan : plans) {
    if (!plan.device) continue;
    const auto uuid = uuid_text(plan.device->info);
    if (std::ranges::find(options.devices, uuid) == options.devices.end()) options.devices.push_back(uuid);
  }
  return std::make_unique<Mps>(options);
}

// Closed before anything is numbered by it.
PoolOptions prepared(PoolOptions options) {
  TaskTable::instance().close();
  return options;
}

}  // namespace

std::string WorkerSlot::describe() const {
  return fmt::format("{} (process {}, {})", plan.name, board->pid.load(std::memory_order_relaxed), place());
}

void WorkerSlot::reset() {
  state = SlotState::absent;
  inbox.reset();
  next_sequence = 1;
  batches.clear();
  outstanding = 0;
  done_by_process = 0;
  seen_in = 0;
  seen_at.clear();
}

PoolCore::PoolCore(const Session& session, const WorkerPlanOptions& workers, const PoolOptions& options)
    : options_(prepared(options)),
      plan_options_(workers),
      session_(session),
      memory_(session),
      board_(OwnBoard::make(options.name.empty() ? "pool" : options.name)),
      results_(session, kResults),
      wake_(make_wake_fd()),
      mean_run_(TaskTable::instance().all().size(), 0.0) {
  const auto& tasks = TaskTable::instance().all();
  Board& board = board_.board();
  board.task_names = static_cast<std::uint32_t>(std::min(tasks.size(), kMostBoardTasks));
  for (std::size_t i = 0; i < board.task_names; ++i) set_text(board.tasks.at(i), tasks[i]->name);
  board_id_ = session_.deposit(board_.file(), kBoardFileName, sizeof(Board));
  const auto plans = plan_workers(workers, look_at_machine());
  if (workers.mps) mps_ = start_mps(plans, workers);
  const MutexLock lock(mutex_);
  add_slots(plans, plans.size());
}

PoolCore::~PoolCore() {
  end(std::chrono::seconds(1));
  try {
    if (session_.self() != kNobody) session_.withdraw(board_id_);
  } catch (const std::exception& error) {
    log(LogLevel::debug, error.what());  // the session is over, and with it what was deposited
  }
}

void PoolCore::start() {
  collector_ = std::thread([this] { collect(); });
  warden_ = std::thread([this] { guard(); });
  if (options_.handles_interrupts) ctrl_c::add(shared_from_this());
}

void PoolCore::add_slots(const std::vector<WorkerPlan>& plans, std::size_t count) {
  if (count > kMostBoardWorkers) {
    throw Error(Errc::limit_reached,
                fmt::format("a pool of {} workers is asked for, of {} at most", count, kMostBoardWorkers),
                "use several pools, or fewer workers with more threads each");
  }
  for (std::size_t i = slots_.size(); i < count; ++i) {
    auto slot = std::make_unique<WorkerSlot>();
    slot->index = i;
    slot->plan = plans.at(i);
    slot->board = &board_.worker(i);
    slot->own_lane = pending_.add_lane();
    slot->lanes = {PendingTasks::kAnybody, slot->own_lane};
    if (slot->plan.device) {
      slot->lanes.push_back(lane_of(slot->device_place()));
      slot->sees_others = sees_other_devices(slot->plan, plan_options_);
    }
    set_text(slot->board->title, slot->plan.name);
    set_text(slot->board->place, slot->place());
    slots_.push_back(std::move(slot));
  }
  lane_mean_.resize(pending_.lane_count(), 0.0);
  board_.board().worker_slots = static_cast<std::uint32_t>(slots_.size());
}

std::size_t PoolCore::lane_of(const Place& place) {
  const auto [at, is_new] = device_lanes_.try_emplace(place, 0);
  if (is_new) at->second = pending_.add_lane();
  return at->second;
}

// A task waits for where most of its bytes on devices lie. Others take it from there only by `relocate`.
void PoolCore::choose_lane(detail::TaskCall& task) const {
  if (const auto worker = task.options().worker) {
    if (*worker >= slots_.size()) {
      throw Error(
          Errc::invalid_argument,
          fmt::format("{} is for worker {}, but the pool has {}", task.describe_call(), *worker, slots_.size()),
          "workers are numbered from 0; see Pool::workers");
    }
    task.lane = slots_[*worker]->own_lane;
    return;
  }
  std::map<Place, std::size_t> bytes;
  for (const auto& tensor : task.tensors()) {
    if (const Place place = tensor.place(); place.is_device) bytes[place] += tensor.bytes();
  }
  if (bytes.empty()) return;
  const auto most = std::ranges::max_element(bytes, {}, [](const auto& one) { return one.second; });
  const auto lane = device_lanes_.find(most->first);
  if (lane == device_lanes_.end()) {
    throw Error(Errc::invalid_argument,
                fmt::format("{} has a tensor on {}, where no worker of the pool is", task.describe_call(),
                            to_string(most->first)),
                "copy it to a device of the pool with Tensor::to, or give the pool a worker there");
  }
  task.lane = lane->second;
}

// Before the mutex is taken: another thread may have held it when the process was forked.
void PoolCore::check_not_forked() const {
  if (session_.self() == kNobody) {
    throw Error(Errc::forked, "a pool is used in a forked child, which is no participant of its session",
                "make the pool in the process that uses it");
  }
}

bool PoolCore::is_served(std::size_t lane) const {
  return lane == PendingTasks::kAnybody ||
         std::ranges::any_of(slots_, [&](const auto& slot) { return slot->is_wanted && slot->serves(lane); });
}

// Tasks for workers that were removed or given up: nobody would ever run them.
void PoolCore::refuse_unserved() {
  for (std::size_t lane = 0; lane < pending_.lane_count(); ++lane) {
    if (pending_.size(lane) == 0 || is_served(lane)) continue;
    for (auto& task : pending_.take_lane(lane)) {
      auto error = std::make_exception_ptr(
          Error(Errc::peer_lost, fmt::format("{} is for a worker that the pool has no more", task->describe_call()),
                "the log says why it is gone; submit the task to another"));
      refuse(std::move(task), std::move(error));
    }
  }
}

void PoolCore::check_open() const {
  if (broken_) std::rethrow_exception(broken_);
  if (!closed_why_.empty()) throw Error(Errc::cancelled, closed_why_, "make another pool");
}

void PoolCore::submit(const TaskPtr& task) {
  check_not_forked();
  require(task->options().timeout.count() >= 0 && task->options().grace.count() >= 0,
          "a task is to have a negative timeout or grace", "0 is none");
  for (const auto& tensor : task->tensors()) {
    if (!tensor.memory().is_of(session_)) {
      throw Error(Errc::invalid_argument, fmt::format("{} has a tensor of another session", task->describe_call()),
                  "make it with Pool::memory(), or copy it there");
    }
  }
  Refusals refusals;
  {
    const MutexLock lock(mutex_);
    check_open();
    task->number = ++last_number_;
    choose_lane(*task);
    if (!is_served(task->lane)) {
      throw Error(Errc::invalid_argument,
                  fmt::format("{} is for a worker that the pool has no more", task->describe_call()),
                  "it was removed by Pool::resize, or could not be started; see Pool::workers");
    }
    task->pool = weak_from_this();
    ++unfinished_;
    pending_.push(task);
    if (std::exchange(is_asleep_, false)) wake_warden();
    if (!is_collected_soon(task->task())) {
      dispatch();
      tell_board();
    }
    refusals = take_refusals();
  }
  refuse_all(refusals);
}

bool PoolCore::cancel(detail::TaskCall& task, detail::FutureState& state) {
  if (session_.self() == kNobody) return false;
  bool is_cancelled = false;
  {
    const MutexLock lock(mutex_);
    is_cancelled = pending_.erase(task);
    for (std::size_t i = 0; i < slots_.size() && !is_cancelled; ++i) {
      WorkerSlot& slot = *slots_[i];
      const bool has_it = std::ranges::any_of(slot.batches, [&](const Batch& batch) {
        return std::ranges::any_of(batch.tasks, [&](const TaskPtr& one) { return one.get() == &task; });
      });
      if (!has_it) continue;
      take_back_from(slot);
      is_cancelled = pending_.erase(task);
      if (!is_cancelled) {
        task.is_cancel_asked = true;
        slot.board->interrupt.store(task.number, std::memory_order_release);
      }
      dispatch();
    }
    if (is_cancelled) {
      --unfinished_;
      ++statistics_.finished;
      ++statistics_.failed;
      changed_.notify_all();
    }
  }
  if (is_cancelled)
    state.fail(
        std::make_exception_ptr(Error(Errc::cancelled, fmt::format("{} was cancelled", task.describe_call()))));
  return is_cancelled;
}

void PoolCore::refuse(TaskPtr task, std::exception_ptr error) {
  ++statistics_.finished;
  ++statistics_.failed;
  refusals_.push_back({std::move(task), std::move(error)});
}

PoolCore::Refusals PoolCore::take_refusals() { return std::exchange(refusals_, {}); }

void PoolCore::refuse_all(const Refusals& refusals) noexcept {
  if (refusals.empty()) return;
  for (const auto& refusal : refusals) refusal.task->refuse(refusal.error);
  const MutexLock lock(mutex_);
  unfinished_ -= refusals.size();
  changed_.notify_all();
}

void PoolCore::cancel_pending(const char* why) {
  for (auto& slot : slots_) take_back_from(*slot);
  for (auto& task : pending_.take_all()) {
    auto error = broken_ ? broken_
                         : std::make_exception_ptr(Error(
                               Errc::cancelled, fmt::format("{} was cancelled: {}", task->describe_call(), why)));
    refuse(std::move(task), std::move(error));
  }
}

void PoolCore::resize(std::size_t workers) {
  check_not_forked();
  require(workers > 0, "a pool cannot be resized to no workers", "end it with Pool::end or Pool::join");
  std::vector<WorkerPlan> plans;
  if (workers > known_slots()) {
    WorkerPlanOptions wanted = plan_options_;
    wanted.workers = workers;
    wanted.per_device = 0;
    plans = plan_workers(wanted, without(look_at_machine(), own_processes()));  // which are among those wanted
  }
  Refusals refusals;
  {
    const MutexLock lock(mutex_);
    check_open();
    add_slots(plans, workers);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      slots_[i]->is_wanted = i < workers;
      if (i >= workers) tell_to_end(*slots_[i]);
    }
    is_asleep_ = false;
    refuse_unserved();
    dispatch();
    refusals = take_refusals();
  }
  refuse_all(refusals);
  wake_warden();
}

WaitResult PoolCore::wait_ready(Deadline deadline) {
  check_not_forked();
  detail::check_may_wait();
  const MutexLock lock(mutex_);
  const auto is_ready = [&]() DROVER_NO_THREAD_ANALYSIS {  // called with the mutex held
    return std::ranges::all_of(slots_,
                               [](const auto& slot) { return !slot->is_wanted || slot->state == SlotState::ready; });
  };
  while (!is_ready()) {
    check_open();
    if (deadline.has_passed()) return WaitResult::timed_out;
    changed_.wait_for(mutex_, std::min<std::chrono::nanoseconds>(deadline.remaining(), std::chrono::seconds(1)));
  }
  check_open();
  return WaitResult::done;
}

WaitResult PoolCore::join(Deadline deadline) {
  check_not_forked();
  detail::check_may_wait();
  {
    const MutexLock lock(mutex_);
    if (closed_why_.empty()) closed_why_ = "the pool was joined and takes no more tasks";
    while (unfinished_ > 0) {
      if (deadline.has_passed()) return WaitResult::timed_out;
      changed_.wait_for(mutex_, std::min<std::chrono::nanoseconds>(deadline.remaining(), std::chrono::seconds(1)));
    }
  }
  end(kEndPatience);
  return WaitResult::done;
}

void PoolCore::interrupt() {
  Refusals refusals;
  {
    const MutexLock lock(mutex_);
    if (closed_why_.empty()) closed_why_ = "the program was interrupted by Ctrl-C";
    cancel_pending("the program was interrupted by Ctrl-C");
    refusals = take_refusals();
    tell_board();
  }
  refuse_all(refusals);
}

void PoolCore::begin_ending(Clock::time_point kill_at) {
  if (closed_why_.empty()) closed_why_ = "the pool has ended";
  is_ending_ = true;
  kill_at_ = std::min(kill_at_, kill_at);
  for (auto& slot : slots_) {
    slot->is_wanted = false;
    tell_to_end(*slot);
  }
  cancel_pending("the pool was ended before it began");  // after everything came back that will
}

// In a forked child the threads do not exist, and everything is the parent's.
void PoolCore::end(std::chrono::milliseconds grace) noexcept {
  if (session_.self() == kNobody) {
    if (collector_.joinable()) collector_.detach();
    if (warden_.joinable()) warden_.detach();
    return;
  }
  ctrl_c::remove(*this);
  Refusals refusals;
  {
    const MutexLock lock(mutex_);
    begin_ending(Deadline::after(grace).moment());
    refusals = take_refusals();
  }
  refuse_all(refusals);
  wake_warden();
  // A thread of the pool cannot wait for itself: another one does, when what was called here has returned.
  if (detail::is_completing_thread()) {
    if (auto self = weak_from_this().lock()) std::thread([self, grace] { self->end(grace); }).detach();
    return;
  }
  const MutexLock one_at_a_time(ending_);
  if (warden_.joinable()) warden_.join();
  stop_collecting();
  if (collector_.joinable()) collector_.join();
}

// The collector ends when it comes to this message, after everything that was said before.
void PoolCore::stop_collecting() noexcept {
  try {
    const ResultHeader last{.slot = static_cast<std::uint16_t>(kMostBoardWorkers), .kind = ResultKind::death};
    const auto bytes = std::as_bytes(std::span(&last, 1));
    if (results_.put(bytes, Deadline::after(std::chrono::seconds(1))) == PutResult::put) return;
  } catch (const std::exception& error) {
    log(LogLevel::debug, error.what());  // the session is over: the collector knows
  }
  stops_collecting_ = true;
}

std::size_t PoolCore::known_slots() const {
  const MutexLock lock(mutex_);
  return slots_.size();
}

std::vector<pid_t> PoolCore::own_processes() const {
  const MutexLock lock(mutex_);
  std::vector<pid_t> pids;
  for (const auto& slot : slots_) {
    if (const auto pid = slot->board->pid.load(std::memory_order_relaxed); pid != 0)
      pids.push_back(static_cast<pid_t>(pid));
  }
  return pids;
}

std::vector<std::size_t> PoolCore::numbers() const {
  check_not_forked();
  const MutexLock lock(mutex_);
  std::vector<std::size_t> numbers;
  for (const auto& slot : slots_) {
    if (slot->is_wanted) numbers.push_back(slot->index);
  }
  return numbers;
}

std::size_t PoolCore::size() const { return numbers().size(); }

std::vector<PoolWorkerInfo> PoolCore::workers() const {
  check_not_forked();
  const MutexLock lock(mutex_);
  std::vector<PoolWorkerInfo> infos;
  for (const auto& slot : slots_) {
    const BoardWorker& board = *slot->board;
    infos.push_back({.index = slot->index,
                     .name = slot->plan.name,
                     .pid = static_cast<pid_t>(board.pid.load(std::memory_order_relaxed)),
                     .place = slot->place(),
                     .device_uuid = slot->state == SlotState::ready ? std::string(board.device.data()) : "",
                     .is_ready = slot->state == SlotState::ready,
                     .done = board.done.load(std::memory_order_relaxed),
                     .starts = slot->starts(),
                     .task = board.task.load(std::memory_order_relaxed)});
  }
  return infos;
}

PoolStatistics PoolCore::statistics() const {
  check_not_forked();
  const MutexLock lock(mutex_);
  PoolStatistics now = statistics_;
  now.pending = pending_.size();
  for (const auto& slot : slots_) now.in_flight += slot->outstanding;
  return now;
}

void PoolCore::tell_board() {
  Board& board = board_.board();
  std::size_t in_flight = 0;
  for (const auto& slot : slots_) in_flight += slot->outstanding;
  board.pending.store(pending_.size(), std::memory_order_relaxed);
  board.in_flight.store(in_flight, std::memory_order_relaxed);
  board.finished.store(statistics_.finished, std::memory_order_relaxed);
  board.failed.store(statistics_.failed, std::memory_order_relaxed);
  board.restarts.store(statistics_.restarts, std::memory_order_relaxed);
}

std::string PoolCore::stall_text() const {
  StallOptions how;
  if (options_.stall_report_after.count() > 0)
    how.patience = std::min<std::chrono::nanoseconds>(how.patience, options_.stall_report_after);
  return to_string(make_stall_report(board_.board(), how));
}

void PoolCore::wake_warden() noexcept { static_cast<void>(::eventfd_write(wake_.get(), 1)); }

}  // namespace drover
