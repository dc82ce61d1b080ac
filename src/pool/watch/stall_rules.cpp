#include "pool/watch/stall_rules.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>

#include <fmt/format.h>

#include "base/duration.hpp"

namespace drover::pool::stall {
namespace {

// A call that has just begun is not the cause: a busy worker may be in some call at any moment.
bool is_inside_one_of(const StallFacts& facts, const WorkerFacts& worker,
                      std::initializer_list<std::string_view> names) {
  constexpr std::chrono::nanoseconds kLongForACall = std::chrono::seconds(1);
  if (worker.worker.inside_since < std::min(facts.patience, kLongForACall)) return false;
  return std::ranges::any_of(names, [&](std::string_view name) { return worker.worker.inside.starts_with(name); });
}

bool uses_gpu(const WorkerFacts& worker) {
  return worker.worker.place.starts_with("cuda") || (worker.process && worker.process->has_gpu_open());
}

const DeviceInfo* device_of(const StallFacts& facts, const WorkerFacts& worker) {
  const auto found = std::ranges::find_if(facts.devices, [&](const DeviceInfo& info) {
    return worker.worker.device.empty() ? device_id(info) == worker.worker.place
                                        : uuid_text(info) == worker.worker.device;
  });
  return found == facts.devices.end() ? nullptr : &*found;
}

std::string gpu_users_text(const StallFacts& facts) {
  std::string text;
  for (const auto& each : facts.gpu_users) {
    text += fmt::format("{}process {} ({})", text.empty() ? "" : ", ", each.pid, each.command);
    if (text.size() > 300) return text + ", ...";
  }
  return text;
}

const process::ThreadFacts* main_thread(const WorkerFacts& worker) {
  return worker.process && !worker.process->threads.empty() ? &worker.process->threads.front() : nullptr;
}

// The newest fault that condemns the GPU, because lesser ones follow from it; otherwise the newest fault.
const GpuFault* worst_fault(const StallFacts& facts, const DeviceInfo& device) {
  const GpuFault* worst = nullptr;
  for (const auto& fault : facts.faults) {  // oldest first
    if (fault.pci.empty() || !device.pci.starts_with(fault.pci)) continue;
    if (worst == nullptr || condemns_gpu(fault.code) || !condemns_gpu(worst->code)) worst = &fault;
  }
  return worst;
}

std::string where_in_kernel(const process::ProcessFacts& process) {
  const auto stuck = std::ranges::find(process.threads, 'D', &process::ThreadFacts::state);
  if (stuck == process.threads.end() || stuck->wait_channel.empty()) return "";
  return fmt::format(" in {}", stuck->wait_channel);
}

}  // namespace

std::optional<StallCause> process_gone(const StallFacts& /*facts*/, const WorkerFacts& worker) {
  const auto state = worker.worker.state;
  if (worker.process && !worker.process->is_zombie()) return std::nullopt;
  if (state == WorkerState::dead || state == WorkerState::none || worker.worker.pid == 0) return std::nullopt;
  return StallCause{
      .id = "process-gone",
      .text = fmt::format("process {} has ended, and the application has not noticed it", worker.worker.pid),
      .remedy = "check whether the application itself is stopped or busy; it replaces workers that end"};
}

std::optional<StallCause> process_stopped(const StallFacts& /*facts*/, const WorkerFacts& worker) {
  if (!worker.process || !worker.process->is_stopped()) return std::nullopt;
  if (worker.process->state == 't') {
    return StallCause{.id = "process-stopped",
                      .text = fmt::format("process {} is held by a debugger", worker.worker.pid),
                      .remedy = "let the debugger continue or detach"};
  }
  return StallCause{.id = "process-stopped",
                    .text = fmt::format("process {} was stopped by a signal (SIGSTOP, SIGTSTP)", worker.worker.pid),
                    .remedy = fmt::format("resume it with `kill -CONT {}`", worker.worker.pid)};
}

// If the GPU of a worker is unknown, a fault could be of another GPU. The report shows it without blaming it.
std::optional<StallCause> gpu_fault(const StallFacts& facts, const WorkerFacts& worker) {
  const auto* const device = device_of(facts, worker);
  if (device == nullptr || !uses_gpu(worker)) return std::nullopt;
  const auto* const fault = worst_fault(facts, *device);
  if (fault == nullptr) return std::nullopt;
  const auto meaning = meaning_of_xid(fault->code);
  return StallCause{.id = "gpu-fault",
                    .text = fmt::format("the driver reported Xid {} for GPU {}{}{}", fault->code, fault->pci,
                                        meaning.empty() ? "" : ": ", meaning),
                    .remedy = condemns_gpu(fault->code)
                                  ? "end the processes on that GPU and reset it (`nvidia-smi --gpu-reset -i ID`), or "
                                    "restart the machine; `dmesg | grep Xid` shows all Xids"
                                  : "find the program that caused it: `dmesg | grep Xid` shows its process id, "
                                    "and compute-sanitizer its error; the GPU itself needs no reset"};
}

// Short uninterruptible sleeps are normal.
std::optional<StallCause> uninterruptible(const StallFacts& facts, const WorkerFacts& worker) {
  if (!worker.process || !worker.process->is_uninterruptible()) return std::nullopt;
  if (worker.worker.since < facts.patience) return std::nullopt;
  const auto where = where_in_kernel(*worker.process);
  const bool is_driver = where.find("nv") != std::string::npos || where.find("uvm") != std::string::npos;
  return StallCause{
      .id = "stuck-in-kernel",
      .text = fmt::format("process {} was seen in uninterruptible sleep{}: likely {}", worker.worker.pid, where,
                          is_driver ? "a call of the GPU's driver does not return"
                                    : "a disk, a network file system or the GPU's driver does not answer"),
      .remedy =
          "check again, because such sleeps may be short; `dmesg` may show the reason; the process cannot be killed "
          "before that call returns"};
}

std::optional<StallCause> cuda_after_fork(const StallFacts& /*facts*/, const WorkerFacts& worker) {
  if (!worker.is_forked_after_cuda) return std::nullopt;
  return StallCause{.id = "cuda-after-fork",
                    .text = fmt::format("process {} was likely forked from one that had started CUDA ({}); CUDA does "
                                        "not work there, and waits for threads that do not exist in the child",
                                        worker.worker.pid, worker.process ? worker.process->parent : 0),
                    .remedy =
                        "start processes with drover, or with `spawn` instead of `fork`, or fork before anything "
                        "uses CUDA"};
}

std::optional<StallCause> context_blocked(const StallFacts& facts, const WorkerFacts& worker) {
  if (!is_inside_one_of(facts, worker, {"cuCtxCreate", "cuDevicePrimaryCtxRetain", "cuInit", "cuCtxSetCurrent"})) {
    return std::nullopt;
  }
  const auto* const device = device_of(facts, worker);
  const auto users = gpu_users_text(facts);
  if (device != nullptr && device->compute_mode == ComputeMode::exclusive_process) {
    return StallCause{
        .id = "context-blocked",
        .text = fmt::format("{} is in exclusive-process mode, and {} on it", worker.worker.place,
                            users.empty() ? "another process may have its context" : users + " may have its context"),
        .remedy =
            "give each worker a device of its own, run the MPS daemon, or allow sharing with `nvidia-smi -c 0`"};
  }
  return StallCause{.id = "context-blocked",
                    .text = fmt::format("the driver is creating a context in {} and has not returned{}",
                                        worker.worker.inside, users.empty() ? "" : "; other users of GPUs: " + users),
                    .remedy = "run `drover doctor`; a GPU that hangs here needs a reset, and `nvidia-smi` hangs too"};
}

std::optional<StallCause> reader_stuck(const StallFacts& facts, const WorkerFacts& worker) {
  // A result is packed before it waits for room, and may wait for its device then.
  const bool is_sending = worker.worker.state == WorkerState::sending;
  if (!is_inside_one_of(facts, worker, {"queue.put", "pipe.send"})) return std::nullopt;
  if (is_sending && worker.worker.inside != "queue.put") return std::nullopt;
  if (!is_sending) {
    return StallCause{.id = "queue-full",
                      .text = "the task is putting into a full queue: its reader is slow, stuck or gone",
                      .remedy = "check the worker or process that reads it; give `put` a deadline"};
  }
  const auto pid = facts.board.application;
  if (!facts.application || facts.application->is_zombie()) {
    return StallCause{.id = "reader-gone",
                      .text = fmt::format("it is waiting to send a result, but the application {} is gone", pid),
                      .remedy = "end the worker; nothing reads its results"};
  }
  return StallCause{
      .id = "reader-stuck",
      .text =
          fmt::format("it is waiting to send a result: the queue is full because the application (process {}, {}) "
                      "does not take results",
                      pid, process::state_text(facts.application->state)),
      .remedy = facts.application->is_stopped()
                    ? fmt::format("resume the application with `kill -CONT {}`", pid)
                    : "take results while tasks are submitted; the application's stack shows what blocks it"};
}

std::optional<StallCause> waits_for_device(const StallFacts& facts, const WorkerFacts& worker) {
  if (!is_inside_one_of(facts, worker,
                        {"cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize", "cuMemcpy", "cuMemset",
                         "cuMemFree", "cuMemAlloc", "stream.synchronize", "event.synchronize", "timeline.wait"})) {
    return std::nullopt;
  }
  const bool is_timeline = worker.worker.inside == "timeline.wait";
  return StallCause{
      .id = "waits-for-device",
      .text = is_timeline
                  ? std::string(
                        "it is waiting for work of another process on a device: that work runs long, hangs, or was "
                        "never submitted")
                  : fmt::format(
                        "it is waiting in {} for work on {}: a kernel runs long, hangs, or waits for one that was "
                        "not submitted",
                        worker.worker.inside, worker.worker.place.empty() ? "a device" : worker.worker.place),
      .remedy =
          "check with `nvidia-smi` whether the GPU is busy; if so, find the kernel with cuda-gdb or with "
          "CUDA_LAUNCH_BLOCKING=1; give the task a timeout"};
}

std::optional<StallCause> waits_for_peer(const StallFacts& facts, const WorkerFacts& worker) {
  if (worker.worker.state != WorkerState::running && worker.worker.state != WorkerState::starting)
    return std::nullopt;
  if (!is_inside_one_of(
          facts, worker,
          {"queue.get", "pipe.receive", "lock", "semaphore", "condition", "event", "barrier", "wait"})) {
    return std::nullopt;
  }
  const auto others = std::ranges::count_if(facts.workers, [&](const WorkerFacts& each) {
    return each.worker.slot != worker.worker.slot && each.worker.state == WorkerState::running;
  });
  return StallCause{
      .id = "waits-for-peer",
      .text =
          others == 0
              ? fmt::format(
                    "the task is waiting in {} for another process, and no other worker is running a task that could "
                    "end that wait",
                    worker.worker.inside)
              : fmt::format("the task is waiting in {} for another process; {}", worker.worker.inside,
                            others == 1 ? "one other worker is running a task"
                                        : fmt::format("{} other workers are running tasks", others)),
      .remedy =
          "find the process that should end the wait; tasks that wait for each other need a worker each; give the "
          "wait a deadline"};
}

std::optional<StallCause> driver_stuck(const StallFacts& facts, const WorkerFacts& worker) {
  if (!is_inside_one_of(facts, worker, {"cu", "nvml"})) return std::nullopt;
  return StallCause{.id = "driver-stuck",
                    .text = fmt::format("the driver does not return from {}", worker.worker.inside),
                    .remedy =
                        "check whether `nvidia-smi` responds and what `dmesg` reports; calls that load code may "
                        "compile it, which takes long"};
}

std::optional<StallCause> starts_slowly(const StallFacts& /*facts*/, const WorkerFacts& worker) {
  if (worker.worker.state != WorkerState::starting) return std::nullopt;
  return StallCause{.id = "starts-slowly",
                    .text = "it has not reached its first task: its initialiser is running, or libraries are loading",
                    .remedy = "its stack shows what it does; a slow file system makes loading slow"};
}

std::optional<StallCause> ends_slowly(const StallFacts& facts, const WorkerFacts& worker) {
  if (worker.worker.state != WorkerState::ending || worker.worker.since < facts.patience) return std::nullopt;
  return StallCause{
      .id = "ends-slowly",
      .text = "it was asked to exit but still runs: destructors, exit handlers or threads do not finish",
      .remedy = fmt::format("its stack shows what it does; `kill -KILL {}` ends it; its tasks are done",
                            worker.worker.pid)};
}

std::optional<StallCause> busy(const StallFacts& /*facts*/, const WorkerFacts& worker) {
  const auto* const thread = main_thread(worker);
  const bool is_sending = worker.worker.state == WorkerState::sending;
  if (!is_sending && worker.worker.state != WorkerState::running) return std::nullopt;
  if (thread == nullptr || thread->state != 'R') return std::nullopt;
  return StallCause{.id = "busy",
                    .text = is_sending ? "busy, not stuck: the result is being packed on the CPU"
                                       : "busy, not stuck: the task is computing on the CPU",
                    .remedy = "no action is needed; a timeout would end the task",
                    .is_harmless = true};
}

std::optional<StallCause> sleeps(const StallFacts& /*facts*/, const WorkerFacts& worker) {
  const auto* const thread = main_thread(worker);
  if (worker.worker.state != WorkerState::running || thread == nullptr || !worker.process) return std::nullopt;
  const auto count = std::ranges::count(worker.process->threads, 'R', &process::ThreadFacts::state);
  if (count > 0) {
    return StallCause{
        .id = "busy",
        .text = count == 1 ? std::string("busy, not stuck: another thread of its process is computing")
                           : fmt::format("busy, not stuck: {} other threads of its process are computing", count),
        .remedy = "no action is needed; a timeout would end the task",
        .is_harmless = true};
  }
  return StallCause{
      .id = "task-sleeps",
      .text = fmt::format(
          "the task is sleeping{}{}, {}", thread->call.empty() ? "" : " in the system call ", thread->call,
          worker.worker.inside.empty() ? "outside of drover" : "and goes in and out of " + worker.worker.inside),
      .remedy = "the stack shows which call waits; give that call a timeout"};
}

std::optional<StallCause> application_gone(const StallFacts& facts) {
  if (facts.application && !facts.application->is_zombie()) return std::nullopt;
  return StallCause{.id = "application-gone",
                    .text = fmt::format("the application (process {}) has ended", facts.board.application),
                    .remedy = "nothing waits for the results; workers end by themselves, or kill them"};
}

std::optional<StallCause> application_stopped(const StallFacts& facts) {
  if (!facts.application || !facts.application->is_stopped()) return std::nullopt;
  return StallCause{.id = "application-stopped",
                    .text = fmt::format("the application (process {}) is {}: it sends no tasks and takes no results",
                                        facts.board.application, process::state_text(facts.application->state)),
                    .remedy = fmt::format("resume it with `kill -CONT {}`", facts.board.application)};
}

std::optional<StallCause> no_workers(const StallFacts& facts) {
  const auto is_alive = [](const WorkerFacts& each) {
    return each.worker.state != WorkerState::dead && each.worker.state != WorkerState::none;
  };
  if (facts.board.pending + facts.board.in_flight == 0 || std::ranges::any_of(facts.workers, is_alive)) {
    return std::nullopt;
  }
  return StallCause{
      .id = "no-workers",
      .text = fmt::format("{} tasks wait, and no worker is alive", facts.board.pending + facts.board.in_flight),
      .remedy = "the application's log says why workers ended and were not replaced"};
}

std::optional<StallCause> idle_with_tasks(const StallFacts& facts) {
  if (facts.board.pending == 0 || facts.workers.empty() || !facts.application) return std::nullopt;
  if (facts.application->is_stopped() || facts.application->is_zombie()) return std::nullopt;
  const bool are_idle = std::ranges::all_of(facts.workers, [&](const WorkerFacts& each) {
    return each.worker.state == WorkerState::idle && each.worker.since >= facts.patience;
  });
  if (!are_idle) return std::nullopt;
  return StallCause{.id = "idle-with-tasks",
                    .text = fmt::format("all {} workers have been idle for long, but {} tasks wait",
                                        facts.workers.size(), facts.board.pending),
                    .remedy =
                        "unless the application's threads are blocked (see its state), this is a bug in drover: "
                        "please report it with "
                        "this text"};
}

std::optional<StallCause> cause_of(const StallFacts& facts, const WorkerFacts& worker) {
  constexpr std::array<WorkerRule, 14> kRules = {process_gone,
                                                 process_stopped,
                                                 gpu_fault,
                                                 uninterruptible,
                                                 cuda_after_fork,
                                                 context_blocked,
                                                 reader_stuck,
                                                 waits_for_device,
                                                 waits_for_peer,
                                                 driver_stuck,
                                                 starts_slowly,
                                                 ends_slowly,
                                                 busy,
                                                 sleeps};
  for (const auto rule : kRules) {
    if (auto cause = rule(facts, worker)) return cause;
  }
  return std::nullopt;
}

std::vector<StallCause> causes_of_pool(const StallFacts& facts) {
  constexpr std::array<PoolRule, 4> kRules = {application_gone, application_stopped, no_workers, idle_with_tasks};
  std::vector<StallCause> causes;
  for (const auto rule : kRules) {
    if (auto cause = rule(facts)) causes.push_back(std::move(*cause));
  }
  return causes;
}

}  // namespace drover::pool::stall
