#include "observe/process_doctor.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "observe/board_reader.hpp"
#include "observe/shared_waits.hpp"
#include "observe/tree_rules.hpp"
#include "pool/watch/stall_report.hpp"
#include "process/inspect/foreign_stacks.hpp"
#include "process/inspect/proc_files.hpp"
#include "process/inspect/python_stacks.hpp"

namespace drover::observe {
namespace {

constexpr std::size_t kMostProcesses = 256;
constexpr std::size_t kMostPathBytes = 80;

std::set<std::string> pipes_waited_on(const std::vector<process::ProcessFacts>& tree) {
  std::set<std::string> pipes;
  for (const auto& process : tree) {
    for (const auto& thread : process.threads) {
      const auto file = std::ranges::find(process.pipes, thread.call_file, &process::OpenFile::number);
      if (thread.call_file >= 0 && file != process.pipes.end()) pipes.insert(file->path);
    }
  }
  return pipes;
}

// "flags:	0100001" in octal: the lowest two bits are the access mode.
void read_rights(const std::filesystem::path& info, PipeHolder& holder) {
  const auto text = process::read_proc_text(info, 1024).value_or("");
  const auto flags = process::leading_number<int>(process::value_of(text, "flags"), 8);
  if (!flags) return;
  const int mode = *flags & O_ACCMODE;
  holder.may_read = mode == O_RDONLY || mode == O_RDWR;
  holder.may_write = mode == O_WRONLY || mode == O_RDWR;
}

// Any process may hold the other end, even outside the tree.
std::vector<PipeHolder> find_pipe_holders(const std::set<std::string>& pipes, const std::filesystem::path& proc) {
  std::vector<PipeHolder> holders;
  if (pipes.empty()) return holders;
  for (const pid_t pid : process::numbers_in(proc)) {
    const auto folder = proc / std::to_string(pid);
    for (const int number : process::numbers_in(folder / "fd")) {
      auto path = process::read_proc_link(folder / "fd" / std::to_string(number));
      if (!pipes.contains(path)) continue;
      PipeHolder holder{.pid = pid, .pipe = std::move(path)};
      read_rights(folder / "fdinfo" / std::to_string(number), holder);
      const auto facts = process::read_process_facts(pid, proc);
      if (facts)
        holder.description =
            fmt::format("process {} ({}, {})", pid, facts->command, process::state_text(facts->state));
      holders.push_back(std::move(holder));
    }
  }
  return holders;
}

TreeFacts collect_tree_facts(pid_t pid, const std::filesystem::path& proc) {
  TreeFacts facts;
  facts.processes = process::read_tree_facts(pid, proc, kMostProcesses, &facts.left_out);
  if (facts.processes.empty()) {
    throw Error(Errc::not_found, fmt::format("there is no process {}", pid),
                "find its pid with `ps aux` or `drover ps`; in a container, pids differ from those of the host");
  }
  if (facts.processes.front().is_hidden) {
    throw Error(
        Errc::permission_denied,
        fmt::format("process {} belongs to user {} and cannot be inspected", pid, facts.processes.front().user),
        "run as its user or as root; a container needs --cap-add=SYS_PTRACE");
  }
  // This process does not examine itself: it cannot attach a debugger to itself.
  if (pid != ::getpid()) std::erase_if(facts.processes, [](const auto& each) { return each.pid == ::getpid(); });
  for (const auto& process : facts.processes) {
    const auto* const known = facts.find(process.parent);
    const auto parent = known != nullptr ? std::optional(*known) : process::read_process_facts(process.parent, proc);
    if (parent && process::is_likely_forked_after_cuda(process, *parent)) facts.forked.push_back(process.pid);
  }
  facts.pipes = find_pipe_holders(pipes_waited_on(facts.processes), proc);
  facts.shared_waits = find_shared_waits(facts.processes, proc);
  return facts;
}

std::string gpu_text(const process::ProcessFacts& process) {
  std::set<std::string> paths;
  for (const auto& file : process.gpu_files) paths.insert(file.path);
  std::string text;
  for (const auto& path : paths) text += (text.empty() ? "has " : ", ") + process::printable(path, kMostPathBytes);
  if (!text.empty()) return text + " open";
  return process.cuda_address ? "has libcuda loaded, and no GPU open" : "";
}

std::vector<std::string> python_lines(const process::ProcessFacts& process, const std::string& proc) {
  std::vector<std::string> lines;
  if (process.is_zombie() || process.is_uninterruptible()) return lines;
  for (const auto& thread : process::read_python_stacks(process.pid, proc)) {
    if (thread.frames.empty()) continue;
    lines.push_back(thread.tid == 0 ? "Python thread:" : fmt::format("Python thread {}:", thread.tid));
    for (const auto& frame : thread.frames) lines.push_back("  " + frame);
  }
  return lines;
}

// Frames of the interpreter itself have no names where it is stripped; its Python frames say more.
void remove_nameless(std::vector<std::string>& stack) {
  std::erase_if(stack, [](const std::string& line) { return line.find(" ?? ") != std::string::npos; });
}

void add_stack(ProcessDiagnosis& diagnosis, const process::ProcessFacts& process, Deadline deadline) {
  if (process.is_zombie() || process.pid == ::getpid()) return;
  if (deadline.has_passed()) {
    diagnosis.stack_problem = "not read: the time for stacks is over";
    return;
  }
  auto stacks = process::read_foreign_stacks(process.pid, deadline);
  diagnosis.stack = std::move(stacks.lines);
  if (!diagnosis.python.empty()) remove_nameless(diagnosis.stack);
  diagnosis.stack_problem = std::move(stacks.problem);
}

// Reports of the pools that a process of the tree owns or works for.
std::vector<std::string> pool_reports(const TreeFacts& facts, const ProcessDoctorOptions& options,
                                      bool& is_alarming) {
  std::vector<std::string> reports;
  for (const auto& found : find_boards(options.proc)) {
    const auto is_ours = [&](pid_t pid) { return facts.find(pid) != nullptr; };
    if (!found.problem.empty() || std::ranges::none_of(found.holders, is_ours)) continue;
    const auto report = pool::make_stall_report(found.board(), {.patience = options.patience, .proc = options.proc});
    is_alarming = is_alarming || report.is_alarming();
    reports.push_back(to_string(report));
  }
  return reports;
}

}  // namespace

TreeDiagnosis examine_process_tree(pid_t pid, const ProcessDoctorOptions& options) {
  require(pid > 0, "a process id is positive");
  const auto facts = collect_tree_facts(pid, options.proc);
  TreeDiagnosis tree{.left_out = facts.left_out};
  bool is_alarming = false;
  tree.pools = pool_reports(facts, options, is_alarming);
  if (is_alarming) tree.verdict = Severity::failure;
  const auto deadline = Deadline::after(options.time_for_stacks);
  for (const auto& process : facts.processes) {
    ProcessDiagnosis diagnosis{.pid = process.pid,
                               .parent = process.parent,
                               .command = process.command,
                               .state = pool::process_text(process),
                               .gpu = gpu_text(process),
                               .python = python_lines(process, options.proc),
                               .findings = judge_process(facts, process)};
    tree.verdict = std::max(tree.verdict, worst(diagnosis.findings));
    if (options.has_stacks) add_stack(diagnosis, process, deadline);
    tree.processes.push_back(std::move(diagnosis));
  }
  return tree;
}

}  // namespace drover::observe
