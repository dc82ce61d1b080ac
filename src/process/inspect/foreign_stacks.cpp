#include "process/inspect/foreign_stacks.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/config.hpp"
#include "drover/base/error.hpp"
#include "drover/base/fd.hpp"
#include "drover/process/child_process.hpp"
#include "process/inspect/proc_files.hpp"
#include "process/inspect/process_facts.hpp"
#include "process/inspect/process_table.hpp"

namespace drover::process {
namespace {

constexpr std::chrono::seconds kDebuggerTimeToDie{1};
constexpr std::size_t kMostOutput = std::size_t{1} << 20U;
constexpr std::size_t kMostLines = 400;
constexpr std::size_t kMostLine = 200;

// Keeps only threads and frames of a debugger's output.
bool is_of_interest(std::string_view line) {
  return line.starts_with('#') || line.starts_with("TID ") || line.starts_with("Thread ");
}

std::vector<std::string> frames_in(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty() && lines.size() < kMostLines) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto line = text.substr(0, end);
    if (is_of_interest(line)) lines.push_back(printable(line, kMostLine));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// A debugger stops the process before it attaches; killed in between, it would leave the process stopped.
void set_going(pid_t pid, const ProcessRecord& before) {
  const auto now = read_process(pid);
  if (now && now->start == before.start && now->state == 'T' && before.state != 'T') ::kill(pid, SIGCONT);
}

ForeignStacks run_tool(pid_t pid, const StackTool& tool, Deadline deadline) {
  const Fd output(::memfd_create("drover-stacks", MFD_CLOEXEC));
  if (!output.is_open()) throw_errno("memfd_create", "the output of a debugger");
  SpawnOptions options{.executable = tool.path, .arguments = tool.arguments};
  options.arguments.push_back(std::to_string(pid));
  options.arguments.insert(options.arguments.end(), tool.tail.begin(), tool.tail.end());
  options.inherit = {{output.get(), STDOUT_FILENO}, {output.get(), STDERR_FILENO}};
  options.streams.input = StandardStream::null();
  options.unset = {"DEBUGINFOD_URLS"};  // it would download debug information
  auto child = std::make_unique<ChildProcess>(ChildProcess::spawn(options));
  const bool has_ended = child->wait(deadline).has_value();
  if (!has_ended) {
    child->kill(SIGKILL);
    // A tool that is stuck in the kernel survives this and is left to its new parent.
    if (!child->wait(Deadline::after(kDebuggerTimeToDie))) {
      [[maybe_unused]] const auto* const abandoned = child.release();
    }
  }
  const auto text = read_proc_text(fmt::format("/proc/self/fd/{}", output.get()), kMostOutput).value_or("");
  ForeignStacks stacks{.lines = frames_in(text), .problem = {}};
  if (!stacks.lines.empty()) return stacks;
  if (!has_ended) {
    stacks.problem = fmt::format("{} did not finish in time", tool.path);
  } else {
    stacks.problem = fmt::format(
        "{} printed no stack: it may not attach; run as root or as the owner, allow it with `sysctl "
        "kernel.yama.ptrace_scope=0`, or start the container with --cap-add=SYS_PTRACE",
        tool.path);
  }
  return stacks;
}

}  // namespace

std::optional<StackTool> find_stack_tool(const std::string& path) {
  const std::vector<StackTool> known = {
      {.path = "eu-stack", .arguments = {"-p"}, .tail = {}},
      {.path = "gdb", .arguments = {"-p"}, .tail = {"-nx", "-batch", "-ex", "thread apply all backtrace 32"}},
  };
  for (StackTool tool : known) {
    for (std::size_t begin = 0; begin <= path.size();) {
      const auto end = std::min(path.find(':', begin), path.size());
      const auto candidate = path.substr(begin, end - begin) + "/" + tool.path;
      begin = end + 1;
      if (::access(candidate.c_str(), X_OK) != 0) continue;
      tool.path = candidate;
      return tool;
    }
  }
  return std::nullopt;
}

ForeignStacks read_foreign_stacks(pid_t pid, const std::optional<StackTool>& tool, Deadline deadline) {
  if (!tool)
    return {.lines = {}, .problem = "no debugger is installed; install elfutils (eu-stack) or gdb for stacks"};
  const auto before = read_process(pid);
  if (!before || before->has_ended()) return {.lines = {}, .problem = "it has ended"};
  const auto facts = read_process_facts(pid);
  if (facts && facts->is_uninterruptible()) {
    return {.lines = {},
            .problem = fmt::format("it is stuck in the kernel, where attaching would block too; as root read "
                                   "/proc/{}/stack",
                                   pid)};
  }
  try {
    auto stacks = run_tool(pid, *tool, deadline);
    set_going(pid, *before);
    return stacks;
  } catch (const Error& error) {
    set_going(pid, *before);
    return {.lines = {}, .problem = error.message()};
  }
}

ForeignStacks read_foreign_stacks(pid_t pid, Deadline deadline) {
  return read_foreign_stacks(pid, find_stack_tool(environment_path("PATH").value_or("/usr/bin:/bin")), deadline);
}

}  // namespace drover::process
