#include "observe/tree_rules.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "observe/checks.hpp"

namespace drover::observe {
namespace {

const process::ThreadFacts* thread_in(const process::ProcessFacts& process, std::string_view call) {
  const auto found = std::ranges::find_if(process.threads, [&](const process::ThreadFacts& each) {
    return each.call == call || each.call.starts_with(std::string(call) + "(");
  });
  return found == process.threads.end() ? nullptr : &*found;
}

bool is_main_thread_in(const process::ProcessFacts& process, std::string_view call) {
  return !process.threads.empty() && process.threads.front().call.starts_with(call);
}

std::vector<const process::ProcessFacts*> ended_children(const TreeFacts& facts,
                                                         const process::ProcessFacts& process) {
  std::vector<const process::ProcessFacts*> ended;
  for (const auto& each : facts.processes) {
    if (each.parent == process.pid && each.is_zombie()) ended.push_back(&each);
  }
  return ended;
}

std::string pids_text(const std::vector<const process::ProcessFacts*>& processes) {
  std::string text;
  for (const auto* each : processes) text += fmt::format("{}{}", text.empty() ? "" : ", ", each->pid);
  return text.size() > 80 ? text.substr(0, 77) + "..." : text;
}

// The pipe on which a thread of the process waits in `call`; empty if none does.
std::string pipe_waited_on(const process::ProcessFacts& process, std::string_view call) {
  const auto* const thread = thread_in(process, call);
  if (thread == nullptr) return {};
  const auto file = std::ranges::find(process.pipes, thread->call_file, &process::OpenFile::number);
  return file == process.pipes.end() || !file->path.starts_with("pipe:") ? std::string() : file->path;
}

// What the main thread waits for, if processes share it; nullptr otherwise.
const SharedWait* shared_wait_of(const TreeFacts& facts, const process::ProcessFacts& process) {
  const auto found = std::ranges::find(facts.shared_waits, process.pid, &SharedWait::tid);
  return found == facts.shared_waits.end() ? nullptr : &*found;
}

// drover's keeper and templates: they wait for requests, and reap children when they have time.
bool is_drover_s_own(const process::ProcessFacts& process) {
  return process.command.find(" --drover-role=keeper") != std::string::npos ||
         process.command.find("drover._template_main ") != std::string::npos;
}

}  // namespace

const process::ProcessFacts* TreeFacts::find(pid_t pid) const noexcept {
  const auto found = std::ranges::find(processes, pid, &process::ProcessFacts::pid);
  return found == processes.end() ? nullptr : &*found;
}

std::optional<Finding> rule_stopped(const TreeFacts& /*facts*/, const process::ProcessFacts& process) {
  if (!process.is_stopped()) return std::nullopt;
  if (process.state == 't')
    return failed("stopped", "it is held by a debugger", "let the debugger continue or detach");
  return failed("stopped", "it was stopped by a signal (SIGSTOP, SIGTSTP)",
                fmt::format("continue it with `kill -CONT {}`", process.pid));
}

std::optional<Finding> rule_stuck_in_kernel(const TreeFacts& /*facts*/, const process::ProcessFacts& process) {
  const auto stuck = std::ranges::find(process.threads, 'D', &process::ThreadFacts::state);
  if (stuck == process.threads.end()) return std::nullopt;
  return failed("stuck-in-kernel",
                fmt::format("thread {} is in uninterruptible sleep{}{}: a disk, a network file system or the GPU's "
                            "driver does not answer",
                            stuck->tid, stuck->wait_channel.empty() ? "" : " in ", stuck->wait_channel),
                "look at `dmesg` for the reason; it cannot be killed before that call returns");
}

std::optional<Finding> rule_cuda_after_fork(const TreeFacts& facts, const process::ProcessFacts& process) {
  if (std::ranges::find(facts.forked, process.pid) == facts.forked.end()) return std::nullopt;
  return failed(
      "cuda-after-fork",
      fmt::format("it was likely forked from process {}, which had started CUDA; CUDA does not work in such "
                  "a child, and can hang there",
                  process.parent),
      "start workers with `spawn` instead of `fork` (Python: multiprocessing.set_start_method(\"spawn\")), "
      "or fork before anything uses CUDA");
}

// Fork does not copy other threads, and the locks they hold stay locked.
std::optional<Finding> rule_lock_after_fork(const TreeFacts& facts, const process::ProcessFacts& process) {
  const auto* const parent = facts.find(process.parent);
  if (parent == nullptr || parent->thread_count < 2 || process.thread_count != 1) return std::nullopt;
  if (!is_main_thread_in(process, "futex") || process.executable.empty()) return std::nullopt;
  if (shared_wait_of(facts, process) != nullptr) return std::nullopt;  // the fork did not copy it
  if (process.executable != parent->executable || process.command != parent->command) return std::nullopt;
  return warned(
      "lock-after-fork",
      fmt::format("it was likely forked from process {}, which has {} threads, and is waiting for a lock; if one "
                  "of those threads held it at the fork, it will never be released here",
                  process.parent, parent->thread_count),
      "start workers with `spawn` instead of `fork`, or fork before threads are started");
}

// With several threads, one of them may be the writer.
std::optional<Finding> rule_pipe_without_writer(const TreeFacts& facts, const process::ProcessFacts& process) {
  if (process.thread_count != 1) return std::nullopt;
  const auto pipe = pipe_waited_on(process, "read");
  if (pipe.empty()) return std::nullopt;
  bool is_own_writer = false;
  for (const auto& holder : facts.pipes) {
    if (holder.pipe != pipe || !holder.may_write) continue;
    if (holder.pid != process.pid) return std::nullopt;
    is_own_writer = true;
  }
  if (!is_own_writer) return std::nullopt;
  return warned(
      "pipe-without-writer",
      fmt::format("it is waiting for {}, whose writer is likely gone: as far as can be seen, no other process "
                  "could write to it",
                  pipe),
      "close the write end in the reading process, so that it gets end of file when the writer dies");
}

std::optional<Finding> rule_pipe_full(const TreeFacts& facts, const process::ProcessFacts& process) {
  const auto pipe = pipe_waited_on(process, "write");
  if (pipe.empty()) return std::nullopt;
  std::string readers;
  for (const auto& holder : facts.pipes) {
    if (holder.pipe != pipe || !holder.may_read || holder.pid == process.pid) continue;
    readers += (readers.empty() ? "" : ", ") + holder.description;
  }
  return warned("pipe-full",
                fmt::format("it is waiting for room in {}: {}", pipe,
                            readers.empty() ? "no other process could read it" : readers + " does not read"),
                "look at the reader; make it read, or end it");
}

std::optional<Finding> rule_dead_child(const TreeFacts& facts, const process::ProcessFacts& process) {
  const auto ended = ended_children(facts, process);
  const bool waits = is_main_thread_in(process, "futex") || is_main_thread_in(process, "sem");
  if (ended.empty() || !waits) return std::nullopt;
  const auto* const shared = shared_wait_of(facts, process);
  if (shared != nullptr && !shared->is_standard) return std::nullopt;  // drover recovers what the child held
  return warned(
      "dead-child",
      fmt::format(
          "it is waiting for a lock or a semaphore, and its child {} has ended: it is likely waiting for a release "
          "or message that will never come",
          pids_text(ended)),
      "wait with a timeout and check that children are alive; drover's locks are released when their holder "
      "dies");
}

std::optional<Finding> rule_unreaped_children(const TreeFacts& facts, const process::ProcessFacts& process) {
  const auto ended = ended_children(facts, process);
  if (ended.empty()) return std::nullopt;
  return warned("unreaped-children",
                fmt::format("{} of its children ended and {} not reaped: {}", ended.size(),
                            ended.size() == 1 ? "was" : "were", pids_text(ended)),
                "call wait (Python: Process.join) for each child, and check its exit status");
}

std::optional<Finding> rule_waits_for_children(const TreeFacts& facts, const process::ProcessFacts& process) {
  if (!is_main_thread_in(process, "wait4") && !is_main_thread_in(process, "waitid")) return std::nullopt;
  std::vector<const process::ProcessFacts*> children;
  for (const auto& each : facts.processes) {
    if (each.parent == process.pid && !each.is_zombie()) children.push_back(&each);
  }
  if (children.empty()) return std::nullopt;
  return noted("waits-for-children", fmt::format("it is waiting for process {} to end", pids_text(children)));
}

std::optional<Finding> rule_busy(const TreeFacts& /*facts*/, const process::ProcessFacts& process) {
  const auto count = std::ranges::count(process.threads, 'R', &process::ThreadFacts::state);
  if (count == 0) return std::nullopt;
  return noted("busy", fmt::format("busy, not stuck: {} of {} threads are running", count, process.thread_count));
}

std::vector<Finding> judge_process(const TreeFacts& facts, const process::ProcessFacts& process) {
  constexpr std::array<TreeRule, 13> kRules = {rule_stopped,
                                               rule_stuck_in_kernel,
                                               rule_cuda_after_fork,
                                               rule_lock_after_fork,
                                               rule_abandoned_lock,
                                               rule_standard_pool,
                                               rule_pipe_without_writer,
                                               rule_pipe_full,
                                               rule_dead_child,
                                               rule_unreaped_children,
                                               rule_drover_wait,
                                               rule_waits_for_children,
                                               rule_busy};
  constexpr std::size_t kForAll = 2;  // those that apply to drover's own processes, too
  const auto rules = std::span(kRules).first(is_drover_s_own(process) ? kForAll : kRules.size());
  std::vector<Finding> findings;
  for (const auto rule : rules) {
    if (auto finding = rule(facts, process)) findings.push_back(std::move(*finding));
  }
  return findings;
}

}  // namespace drover::observe
