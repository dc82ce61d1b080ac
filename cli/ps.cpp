// drover ps: the pools of this user, and what their workers do.
#include "observe/ps.hpp"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/duration.hpp"
#include "commands.hpp"
#include "device_json.hpp"
#include "drover/base/bytes.hpp"
#include "output.hpp"

namespace drover::cli {
namespace {

constexpr const char* kClearScreen = "\033[H\033[2J";
constexpr double kShortestPause = 0.1;  // seconds
constexpr double kLongestPause = 3600;

struct Options {
  bool is_json = false;
  bool has_stacks = false;
  bool is_watching = false;
  double pause = 2;  // seconds
};

// CPU time of processes, by process id.
using CpuTimes = std::map<pid_t, std::chrono::nanoseconds>;

double share(std::chrono::nanoseconds part, std::chrono::nanoseconds whole) {
  return whole.count() <= 0 ? 0 : 100.0 * static_cast<double>(part.count()) / static_cast<double>(whole.count());
}

// CPU use in percent since the previous sample, or since the start of a process that it did not include.
class CpuShares {
 public:
  void begin_sample() {
    const auto now = std::chrono::steady_clock::now();
    elapsed_ = now - sampled_;
    sampled_ = now;
    before_ = std::exchange(now_, {});
  }
  double of(pid_t pid, const observe::WorkerProcess& process) {
    now_[pid] = process.cpu_time;
    const auto known = before_.find(pid);
    if (known == before_.end() || known->second > process.cpu_time) return share(process.cpu_time, process.age);
    return share(process.cpu_time - known->second, elapsed_);
  }

 private:
  std::chrono::steady_clock::time_point sampled_;
  std::chrono::nanoseconds elapsed_{};
  CpuTimes before_;
  CpuTimes now_;
};

double seconds_of(std::chrono::nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

std::string task_text(const pool::WorkerReading& worker) {
  if (worker.task == 0) return "-";
  return worker.task_name.empty() ? fmt::format("#{}", worker.task)
                                  : fmt::format("{} #{}", worker.task_name, worker.task);
}

std::string inside_text(const pool::WorkerReading& worker) {
  if (worker.inside.empty()) return "-";
  return fmt::format("{} {}", worker.inside, format_duration(worker.inside_since));
}

// The kernel's state of the process takes precedence over the worker's last entry.
std::string state_of(const pool::WorkerReading& worker, const observe::WorkerProcess& process) {
  std::string state(to_string(worker.state));
  if (worker.state == pool::WorkerState::dead) return state;
  if (!process.is_alive) return state + " (gone)";
  if (process.state == 'T' || process.state == 't') return state + " (stopped)";
  if (process.state == 'D') return state + " (in kernel)";
  return state;
}

std::vector<std::string> worker_row(const pool::WorkerReading& worker, const observe::WorkerProcess& process,
                                    double cpu) {
  const auto known = [&](std::string text) { return process.is_alive ? std::move(text) : std::string("-"); };
  return {worker.name.empty() ? "-" : worker.name,
          worker.pid == 0 ? "-" : std::to_string(worker.pid),
          worker.place.empty() ? "-" : worker.place,
          state_of(worker, process),
          task_text(worker),
          format_duration(worker.since),
          inside_text(worker),
          std::to_string(worker.done),
          std::to_string(worker.starts),
          known(fmt::format("{:.0f}", cpu)),
          known(format_bytes(process.resident))};
}

std::string heading(const observe::PoolInfo& pool) {
  const auto& board = pool.board;
  return fmt::format(
      "pool {} of process {}{}, {} old: {} pending, {} in flight, {} finished, {} failed, {} restarts\n",
      board.pool.empty() ? "-" : board.pool, board.application, pool.is_application_alive ? "" : " (gone)",
      format_duration(board.age), board.pending, board.in_flight, board.finished, board.failed, board.restarts);
}

std::string stacks_text(const observe::PoolInfo& pool) {
  std::string text;
  for (std::size_t i = 0; i < pool.processes.size(); ++i) {
    const auto& process = pool.processes[i];
    if (process.stack.empty() && process.stack_problem.empty()) continue;
    text += fmt::format("\nstack of {} ({}){}{}\n", pool.board.workers[i].name, pool.board.workers[i].pid,
                        process.stack_problem.empty() ? "" : ": ", process.stack_problem);
    for (std::size_t frame = 0; frame < process.stack.size(); ++frame) {
      text += fmt::format("  #{} {}\n", frame, process.stack[frame]);
    }
    for (const auto& line : process.stack_text) text += fmt::format("  {}\n", line);
  }
  return text;
}

std::string pool_text(const observe::PoolInfo& pool, CpuShares& shares) {
  if (!pool.problem.empty()) {
    return fmt::format("pool of process {}: {}\n", pool.board.application, pool.problem);
  }
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "PID", "PLACE", "STATE", "TASK", "FOR", "INSIDE", "DONE", "STARTS", "CPU%", "RSS"}};
  for (std::size_t i = 0; i < pool.board.workers.size(); ++i) {
    const auto& worker = pool.board.workers[i];
    rows.push_back(worker_row(worker, pool.processes[i], shares.of(worker.pid, pool.processes[i])));
  }
  return heading(pool) + (rows.size() == 1 ? "no workers\n" : format_table(rows)) + stacks_text(pool);
}

std::string as_text(const std::vector<observe::PoolInfo>& pools, CpuShares& shares) {
  if (pools.empty()) return "no pools\n";
  std::string text;
  for (const auto& pool : pools) text += (text.empty() ? "" : "\n") + pool_text(pool, shares);
  return text;
}

Json worker_json(const pool::WorkerReading& worker, const observe::WorkerProcess& process, double cpu) {
  const auto known = [&](Json value) { return process.is_alive ? std::move(value) : Json(nullptr); };
  const auto text = [](const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); };
  return {{"name", worker.name},
          {"pid", worker.pid},
          {"place", worker.place},
          {"device", text(worker.device)},
          {"state", to_string(worker.state)},
          {"task", worker.task == 0 ? Json(nullptr) : Json(worker.task)},
          {"task_name", text(worker.task_name)},
          {"since_seconds", seconds_of(worker.since)},
          {"inside", text(worker.inside)},
          {"inside_seconds", worker.inside.empty() ? Json(nullptr) : Json(seconds_of(worker.inside_since))},
          {"done", worker.done},
          {"starts", worker.starts},
          {"is_interrupted", worker.is_interrupted},
          {"is_alive", process.is_alive},
          {"process_state", known(std::string(1, process.state))},
          {"wait_channel", known(text(process.wait_channel))},
          {"cpu_percent", known(cpu)},
          {"resident_bytes", known(process.resident)},
          {"stack", process.stack},
          {"stack_problem", text(process.stack_problem)},
          {"stack_text", process.stack_text}};
}

Json pool_json(const observe::PoolInfo& pool, CpuShares& shares) {
  const auto& board = pool.board;
  auto workers = Json::array();
  for (std::size_t i = 0; i < board.workers.size(); ++i) {
    const auto& worker = board.workers[i];
    workers.push_back(worker_json(worker, pool.processes[i], shares.of(worker.pid, pool.processes[i])));
  }
  return {{"name", board.pool},
          {"application_pid", board.application},
          {"is_application_alive", pool.is_application_alive},
          {"age_seconds", seconds_of(board.age)},
          {"pending", board.pending},
          {"in_flight", board.in_flight},
          {"finished", board.finished},
          {"failed", board.failed},
          {"restarts", board.restarts},
          {"workers", std::move(workers)},
          {"problem", pool.problem.empty() ? Json(nullptr) : Json(pool.problem)}};
}

std::string as_json(const std::vector<observe::PoolInfo>& pools, CpuShares& shares, int indent) {
  auto list = Json::array();
  for (const auto& pool : pools) list.push_back(pool_json(pool, shares));
  return dumped({{"pools", std::move(list)}}, indent);
}

std::string sample(const Options& options, CpuShares& shares) {
  shares.begin_sample();
  observe::PoolListOptions what;
  what.has_stacks = options.has_stacks;
  const auto pools = observe::list_pools(what);
  if (options.is_json) return as_json(pools, shares, options.is_watching ? -1 : 2);
  return as_text(pools, shares);
}

volatile std::sig_atomic_t is_interrupted = 0;

extern "C" void end_watching(int /*signal*/) { is_interrupted = 1; }

// Sleeps; returns false after Ctrl-C. Signals are unblocked only during the sleep, so that none is missed.
bool pause_for(double seconds, const sigset_t& while_asleep) {
  const auto whole = static_cast<std::time_t>(seconds);
  const timespec time{.tv_sec = whole, .tv_nsec = static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  if (is_interrupted == 0) ::ppoll(nullptr, 0, &time, &while_asleep);
  return is_interrupted == 0;
}

Exit watch(const Options& options) {
  sigset_t blocked{};
  sigset_t before{};
  ::sigemptyset(&blocked);
  struct sigaction action{};
  action.sa_handler = end_watching;
  for (const int signal : {SIGINT, SIGTERM}) {
    ::sigaddset(&blocked, signal);
    ::sigaction(signal, &action, nullptr);
  }
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1 && !options.is_json;
  CpuShares shares;
  do {
    const auto text = sample(options, shares);
    write_output(is_terminal ? kClearScreen + text : text + (options.is_json ? "" : "\n"));
  } while (pause_for(options.pause, before));
  return exit_good;
}

constexpr const char* kFooter =
    R"(Pools publish the state of their workers in memory that any process of the same user can read, so workers that hang
are shown too. INSIDE is the driver call or the wait in which the main thread is. With --stacks each worker is
interrupted briefly and writes its stack.

Examples:
  drover ps
  drover ps --watch                     repeat every 2 seconds until Ctrl-C
  drover ps --watch 0.5 --json          one object per line
  drover ps --stacks
  drover ps --json | jq '.pools[].workers[] | select(.since_seconds > 60)'
  drover doctor --pid PID               why a worker makes no progress)";

}  // namespace

void add_ps(CLI::App& app, Run& run) {
  auto* const command = app.add_subcommand("ps", "Show the pools of this user, and what their workers do");
  const auto options = std::make_shared<Options>();  // shared with the callback, which outlives this function
  command->add_flag("--json", options->is_json, "Print JSON");
  command->add_flag("--stacks", options->has_stacks, "Show the native stack of each worker");
  auto* const watching = command->add_option("--watch", options->pause, "Repeat after this many seconds (2)")
                             ->expected(0, 1)
                             ->check(CLI::Range(kShortestPause, kLongestPause));
  command->footer(kFooter);
  command->callback([options, watching, &run] {
    options->is_watching = watching->count() > 0;
    run = [options] {
      if (options->is_watching) return watch(*options);
      CpuShares shares;
      write_output(sample(*options, shares));
      return exit_good;
    };
  });
}

}  // namespace drover::cli
