// Rules about locks that processes share: those of multiprocessing, and drover's.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "observe/checks.hpp"
#include "observe/tree_rules.hpp"

namespace drover::observe {
namespace {

constexpr std::size_t kPoolThreads = 4;       // the main thread, and three of multiprocessing.pool.Pool
constexpr std::uint64_t kReplacedLater = 30;  // clock ticks; a pool starts its first workers one right after another

const SharedWait* standard_wait_of(const TreeFacts& facts, pid_t pid) {
  const auto found = std::ranges::find_if(
      facts.shared_waits, [&](const SharedWait& each) { return each.pid == pid && each.is_standard; });
  return found == facts.shared_waits.end() ? nullptr : &*found;
}

bool is_reading(const process::ProcessFacts& process) {
  return !process.threads.empty() && process.threads.front().call.starts_with("read(");
}

// The children that share the lock for which some of them wait; empty unless all of them are idle.
std::vector<const process::ProcessFacts*> idle_workers(const TreeFacts& facts, const process::ProcessFacts& parent,
                                                       const SharedWait& lock) {
  std::vector<const process::ProcessFacts*> workers;
  for (const auto& each : facts.processes) {
    if (each.parent != parent.pid || each.is_zombie()) continue;
    const auto* const wait = standard_wait_of(facts, each.pid);
    const bool is_waiting = wait != nullptr && wait->word == lock.word;
    const bool has_lock = std::ranges::find(lock.sharers, each.pid) != lock.sharers.end();
    if (!is_waiting && !has_lock) continue;
    if (!is_waiting && !is_reading(each)) return {};
    workers.push_back(&each);
  }
  return workers;
}

std::string pids_of(const std::vector<const process::ProcessFacts*>& processes) {
  std::vector<pid_t> pids;
  for (const auto* each : processes) pids.push_back(each->pid);
  return fmt::format("{}", fmt::join(pids, ", "));
}

// The processes started long after the one before them, with all that follow.
std::vector<const process::ProcessFacts*> started_later(std::vector<const process::ProcessFacts*> workers) {
  std::ranges::sort(workers, {}, &process::ProcessFacts::start);
  for (std::size_t i = 1; i < workers.size(); ++i) {
    if (workers[i]->start - workers[i - 1]->start < kReplacedLater) continue;
    workers.erase(workers.begin(), workers.begin() + static_cast<std::ptrdiff_t>(i));
    return workers;
  }
  return {};
}

Finding judge_idle_pool(const std::vector<const process::ProcessFacts*>& workers) {
  constexpr const char* kRemedy =
      "end the program and find out why the worker died; multiprocessing's Pool does not report it, drover.Pool and "
      "concurrent.futures.ProcessPoolExecutor do";
  if (std::ranges::none_of(workers, [](const auto* each) { return is_reading(*each); })) {
    return warned("standard-pool",
                  fmt::format("its workers {} look like a pool of multiprocessing; all wait for the lock of their "
                              "queue and none of them reads it: the worker that held the lock has likely died, and "
                              "the pool will never continue",
                              pids_of(workers)),
                  kRemedy);
  }
  return warned("standard-pool",
                fmt::format("its workers {} look like a pool of multiprocessing, and all are idle; process {} was "
                            "started later than the others, likely for a worker that died, whose task is lost and "
                            "will be waited for for ever",
                            pids_of(workers), pids_of(started_later(workers))),
                kRemedy);
}

}  // namespace

// Other threads of the process could release it, so with several it is only likely.
std::optional<Finding> rule_abandoned_lock(const TreeFacts& facts, const process::ProcessFacts& process) {
  const auto* const wait = standard_wait_of(facts, process.pid);
  if (wait == nullptr || !wait->sharers.empty()) return std::nullopt;
  const bool is_certain = process.thread_count == 1;
  const auto text = fmt::format(
      "it is waiting for a lock or semaphore of multiprocessing that no other living process has: {}the process that "
      "held it has ended without a release",
      is_certain ? "" : "unless another of its threads releases it, ");
  constexpr const char* kRemedy =
      "end the program; such a lock stays held when its holder dies. drover's locks (drover.Lock and others) are "
      "released then";
  return is_certain ? failed("abandoned-lock", text, kRemedy) : warned("abandoned-lock", text, kRemedy);
}

std::optional<Finding> rule_standard_pool(const TreeFacts& facts, const process::ProcessFacts& process) {
  if (process.thread_count < kPoolThreads || process.threads.empty()) return std::nullopt;
  if (process.threads.front().futex == 0) return std::nullopt;  // the program does something else
  for (const auto& wait : facts.shared_waits) {
    const auto* const child = facts.find(wait.pid);
    if (!wait.is_standard || child == nullptr || child->parent != process.pid) continue;
    const auto workers = idle_workers(facts, process, wait);
    const bool is_read = std::ranges::any_of(workers, [](const auto* each) { return is_reading(*each); });
    if (workers.size() < 2 || (is_read && started_later(workers).empty())) continue;
    return judge_idle_pool(workers);
  }
  return std::nullopt;
}

std::optional<Finding> rule_drover_wait(const TreeFacts& facts, const process::ProcessFacts& process) {
  std::string text;
  for (const auto& wait : facts.shared_waits) {
    if (wait.pid != process.pid || wait.object.empty()) continue;
    text += fmt::format("{}thread {} is waiting for drover's {}{}", text.empty() ? "" : "; ", wait.tid, wait.object,
                        wait.holder.empty() ? "" : ", held by " + wait.holder);
  }
  if (text.empty()) return std::nullopt;
  return noted("drover-wait", text);
}

}  // namespace drover::observe
