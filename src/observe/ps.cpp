#include "observe/ps.hpp"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <tuple>
#include <utility>

#include "drover/base/clock.hpp"
#include "observe/board_reader.hpp"
#include "pool/watch/board.hpp"
#include "pool/watch/stack_sampler.hpp"
#include "process/inspect/process_facts.hpp"
#include "process/inspect/symbols.hpp"

namespace drover::observe {
namespace {

constexpr std::chrono::milliseconds kTimeForAStack{500};

std::chrono::nanoseconds from_ticks(std::uint64_t ticks) {
  static const double per_second = static_cast<double>(std::max(::sysconf(_SC_CLK_TCK), 1L));
  const std::chrono::duration<double> seconds(static_cast<double>(ticks) / per_second);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(seconds);
}

// The clock that the kernel uses for the start times of processes.
std::chrono::nanoseconds time_since_boot() {
  timespec now{};
  static_cast<void>(::clock_gettime(CLOCK_BOOTTIME, &now));
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

WorkerProcess describe(const pool::WorkerReading& worker, const std::filesystem::path& proc) {
  WorkerProcess process;
  const auto facts = worker.pid > 0 ? process::read_process_facts(worker.pid, proc) : std::nullopt;
  if (!facts) return process;
  process.is_alive = !facts->is_zombie();
  process.state = facts->state;
  if (!facts->threads.empty()) process.wait_channel = facts->threads.front().wait_channel;
  process.cpu_time = from_ticks(facts->cpu_ticks);
  process.age = std::max(time_since_boot() - from_ticks(facts->start), std::chrono::nanoseconds(0));
  process.resident = facts->resident;
  return process;
}

// A process that does not have the board open is not a worker, whatever the board says, and must not be interrupted.
void add_stack(const FoundBoard& found, const pool::WorkerReading& worker, WorkerProcess& process, Deadline deadline,
               const std::filesystem::path& proc) {
  if (!process.is_alive) return;
  if (!found.is_held_by(worker.pid)) {
    process.stack_problem = "it is not a worker of this pool";
    return;
  }
  const auto until = std::min(deadline.moment(), Deadline::after(kTimeForAStack).moment());
  const auto sample =
      pool::sample_stack(worker.pid, 0, found.board().workers.at(worker.slot), Deadline::at(until), proc);
  process.stack_problem = sample.problem;
  process.stack_text = sample.text;
  if (!sample.addresses.empty())
    process.stack = process::Symbolizer(worker.pid, proc).describe_stack(sample.addresses);
}

PoolInfo describe_pool(const FoundBoard& found, const PoolListOptions& options) {
  PoolInfo pool;
  pool.problem = found.problem;
  if (!found.problem.empty()) {
    pool.board.application = found.holders.front();
    pool.is_application_alive = true;
    return pool;
  }
  pool.board = pool::read_board(found.board());
  const auto application = process::read_process_facts(pool.board.application, options.proc);
  pool.is_application_alive = application && !application->is_zombie() && found.is_held_by(application->pid);
  const auto deadline = Deadline::after(options.time_for_stacks);
  for (const auto& worker : pool.board.workers) {
    pool.processes.push_back(describe(worker, options.proc));
    if (options.has_stacks) add_stack(found, worker, pool.processes.back(), deadline, options.proc);
  }
  return pool;
}

}  // namespace

std::vector<PoolInfo> list_pools(const PoolListOptions& options) {
  std::vector<PoolInfo> pools;
  for (const auto& found : find_boards(options.proc)) pools.push_back(describe_pool(found, options));
  std::ranges::sort(pools, [](const PoolInfo& left, const PoolInfo& right) {
    return std::tuple(left.board.application, -left.board.age) <
           std::tuple(right.board.application, -right.board.age);
  });
  return pools;
}

}  // namespace drover::observe
