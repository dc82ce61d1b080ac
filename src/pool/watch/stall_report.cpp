#include "pool/watch/stall_report.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/duration.hpp"

namespace drover::pool {
namespace {

constexpr std::size_t kMostFramesShown = 12;

// A worker may wait for tasks for any time, unless it could not take one.
bool is_of_interest(const StallFacts& facts, const WorkerFacts& each) {
  const auto state = each.worker.state;
  if (state == WorkerState::dead || state == WorkerState::none) return false;
  if (!each.process || each.process->is_stopped() || each.process->is_zombie()) return true;
  return state != WorkerState::idle && each.worker.since >= facts.patience;
}

std::string counted(std::uint64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string cause_text(const StallCause& cause, const char* indent) {
  return fmt::format("{}likely cause: {}\n{}remedy: {}\n", indent, cause.text, indent, cause.remedy);
}

std::string task_text(const WorkerReading& worker) {
  std::string text(drover::pool::to_string(worker.state));
  if (worker.task != 0) text += fmt::format(" task {}", worker.task);
  if (!worker.task_name.empty()) text += fmt::format(" \"{}\"", worker.task_name);
  text += " for " + format_duration(worker.since);
  if (!worker.inside.empty()) {
    text += fmt::format(", inside {} for {}", worker.inside, format_duration(worker.inside_since));
  }
  return text + (worker.is_interrupted ? "; it was asked to stop" : "");
}

std::string worker_text(const StalledWorker& stalled) {
  const auto& worker = stalled.facts.worker;
  auto text = fmt::format("{} (process {}{}{}): {}\n", worker.name.empty() ? "worker" : worker.name, worker.pid,
                          worker.place.empty() ? "" : ", ", worker.place, task_text(worker));
  text += fmt::format("  process: {}\n", stalled.facts.process ? process_text(*stalled.facts.process) : "gone");
  if (!stalled.facts.stack.empty()) {
    text += "  stack:\n" + stack_text(stalled.facts.stack, "    ");
  } else if (!stalled.facts.stack_problem.empty()) {
    text += fmt::format("  stack: none; {}\n", stalled.facts.stack_problem);
  }
  if (!stalled.facts.stack_text.empty()) text += "  in its interpreter:\n";
  for (const auto& line : stalled.facts.stack_text) text += fmt::format("    {}\n", line);
  return text + (stalled.cause ? cause_text(*stalled.cause, "  ") : std::string("  cause: not known\n"));
}

std::string heading(const StallReport& report) {
  const auto& board = report.board;
  return fmt::format("pool \"{}\" of process {}, {} old: {} wait, {} with workers, {} finished ({} failed), {}\n",
                     board.pool, board.application, format_duration(board.age),
                     counted(board.pending, "task", "tasks"), board.in_flight, board.finished, board.failed,
                     counted(board.restarts, "restart", "restarts"));
}

}  // namespace

bool StallReport::is_alarming() const noexcept {
  return !causes.empty() ||
         std::ranges::any_of(workers, [](const auto& each) { return !each.cause || !each.cause->is_harmless; });
}

StallReport judge_stall(const StallFacts& facts) {
  StallReport report{.board = facts.board,
                     .application = facts.application,
                     .workers = {},
                     .causes = stall::causes_of_pool(facts),
                     .faults = facts.faults};
  for (const auto& each : facts.workers) {
    if (is_of_interest(facts, each)) report.workers.push_back({.facts = each, .cause = stall::cause_of(facts, each)});
  }
  return report;
}

StallReport make_stall_report(Board& board, const StallOptions& options) {
  return judge_stall(collect_stall_facts(board, options));
}

std::string process_text(const process::ProcessFacts& process) {
  std::string text = process::state_text(process.state);
  if (process.is_zombie()) return text;
  if (!process.threads.empty()) {
    const auto& main = process.threads.front();
    if (!main.call.empty()) text += " in " + main.call;
    if (!main.wait_channel.empty()) text += fmt::format(" (kernel: {})", main.wait_channel);
  }
  return text + ", " + counted(process.thread_count, "thread", "threads");
}

std::string stack_text(const std::vector<std::string>& stack, const std::string& indent) {
  std::string text;
  const auto shown = std::min(stack.size(), kMostFramesShown);
  for (std::size_t i = 0; i < shown; ++i) text += fmt::format("{}#{} {}\n", indent, i, stack[i]);
  if (stack.size() > shown) text += fmt::format("{}... {} more\n", indent, stack.size() - shown);
  return text;
}

std::string to_string(const StallReport& report) {
  auto text = heading(report);
  text += fmt::format("application (process {}): {}\n", report.board.application,
                      report.application ? process_text(*report.application) : "gone");
  for (const auto& cause : report.causes) text += cause_text(cause, "  ");
  for (const auto& worker : report.workers) text += worker_text(worker);
  for (const auto& fault : report.faults) text += fmt::format("kernel log: {}\n", fault.text);
  if (report.workers.empty() && report.causes.empty()) text += "no worker is stalled\n";
  return text;
}

}  // namespace drover::pool
