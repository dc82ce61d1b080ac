#include "pool/watch/stall_facts.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "pool/watch/board.hpp"
#include "pool/watch/stack_sampler.hpp"
#include "process/inspect/proc_files.hpp"
#include "process/inspect/symbols.hpp"

namespace drover::pool {
namespace {

constexpr std::size_t kMostStacks = 16;
constexpr std::chrono::milliseconds kTimeForAStack{500};

bool is_slow(const WorkerReading& worker, std::chrono::nanoseconds patience) {
  return worker.state != WorkerState::idle && worker.since >= patience;
}

void add_stack(Board& board, WorkerFacts& facts, const StallOptions& options, Deadline deadline) {
  const auto moment = std::min(deadline.moment(), Deadline::after(kTimeForAStack).moment());
  const auto sample =
      sample_stack(facts.worker.pid, 0, board.workers.at(facts.worker.slot), Deadline::at(moment), options.proc);
  facts.stack_problem = sample.problem;
  facts.stack_text = sample.text;
  if (!sample.addresses.empty()) {
    facts.stack = process::Symbolizer(facts.worker.pid, options.proc).describe_stack(sample.addresses);
  }
}

// The longest waits come first, because the time is limited.
void add_stacks(Board& board, std::vector<WorkerFacts>& workers, const StallOptions& options) {
  std::vector<WorkerFacts*> slow;
  for (auto& each : workers) {
    if (each.process && is_slow(each.worker, options.patience)) slow.push_back(&each);
  }
  std::ranges::sort(slow, std::ranges::greater{}, [](const WorkerFacts* each) { return each->worker.since; });
  const auto deadline = Deadline::after(options.time_for_stacks);
  for (std::size_t i = 0; i < slow.size(); ++i) {
    if (i >= kMostStacks || deadline.has_passed()) {
      slow[i]->stack_problem = "not requested: too many workers wait";
    } else {
      add_stack(board, *slow[i], options, deadline);
    }
  }
}

std::vector<process::ProcessFacts> find_gpu_users(const StallFacts& facts, const std::filesystem::path& proc) {
  std::set<pid_t> ours = {facts.board.application};
  for (const auto& each : facts.workers) ours.insert(each.worker.pid);
  std::vector<process::ProcessFacts> users;
  for (const pid_t pid : process::numbers_in(proc)) {
    if (ours.contains(pid)) continue;
    const auto folder = proc / std::to_string(pid) / "fd";
    const auto files = process::numbers_in(folder);
    const bool has_gpu = std::ranges::any_of(files, [&](int file) {
      return process::read_proc_link(folder / std::to_string(file)).starts_with("/dev/nvidia");
    });
    if (!has_gpu) continue;
    if (auto found = process::read_process_facts(pid, proc)) users.push_back(std::move(*found));
  }
  return users;
}

// Both clocks start at boot. Suspends may shift them, which at most makes old faults look newer.
std::vector<GpuFault> faults_since(std::chrono::nanoseconds age, const std::filesystem::path& log) {
  auto faults = read_gpu_faults(log);
  const auto begin = Clock::now().time_since_epoch() - age;
  std::erase_if(faults, [&](const GpuFault& fault) { return fault.when < begin; });
  return faults;
}

}  // namespace

StallFacts collect_stall_facts(Board& board, const StallOptions& options) {
  StallFacts facts{.board = read_board(board), .devices = options.devices, .patience = options.patience};
  facts.application = process::read_process_facts(facts.board.application, options.proc);
  for (const auto& worker : facts.board.workers) {
    WorkerFacts each{.worker = worker};
    if (worker.pid > 0) each.process = process::read_process_facts(worker.pid, options.proc);
    if (each.process && each.process->has_gpu_open()) {
      const auto parent = process::read_process_facts(each.process->parent, options.proc);
      each.is_forked_after_cuda = parent && process::is_likely_forked_after_cuda(*each.process, *parent);
    }
    facts.workers.push_back(std::move(each));
  }
  add_stacks(board, facts.workers, options);
  facts.faults = faults_since(facts.board.age, options.kernel_log);
  if (std::ranges::any_of(facts.workers, [](const auto& each) { return each.worker.inside.starts_with("cu"); })) {
    facts.gpu_users = find_gpu_users(facts, options.proc);
  }
  return facts;
}

}  // namespace drover::pool
