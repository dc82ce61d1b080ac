#include "process/inspect/process_facts.hpp"

#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "process/inspect/proc_files.hpp"
#include "process/inspect/symbols.hpp"

namespace drover::process {
namespace {

constexpr std::size_t kMostCommand = 160;
constexpr std::size_t kMostName = 32;
constexpr std::size_t kMostFiles = 4096;

// The fields of a stat file after the name, which may hold anything: the state is 0.
std::vector<std::string_view> fields_of(std::string_view stat) {
  std::vector<std::string_view> fields;
  const auto close = stat.rfind(')');
  if (close == std::string_view::npos || close + 2 > stat.size()) return fields;
  auto rest = stat.substr(close + 2);
  while (!rest.empty()) {
    const auto end = std::min(rest.find_first_of(" \n"), rest.size());
    fields.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return fields;
}

template <class Number>
Number field(const std::vector<std::string_view>& fields, std::size_t nth) {
  return nth < fields.size() ? leading_number<Number>(fields[nth]).value_or(0) : Number{0};
}

std::string one_word(const std::filesystem::path& path) {
  const auto text = read_proc_text(path, 256);
  if (!text) return {};
  return printable(std::string_view(*text).substr(0, text->find('\n')), 64);
}

// "running", or "-1 SP PC" outside of a call, or "NUMBER ARGUMENT ... SP PC".
void read_call(const std::filesystem::path& folder, ThreadFacts& thread) {
  const auto text = read_proc_text(folder / "syscall", 256);
  const auto number = text ? leading_number<long>(*text) : std::nullopt;
  if (!number || *number < 0) return;
  thread.call = system_call_name(*number);
  constexpr std::array<std::string_view, 11> kAboutFiles = {
      "read", "write", "ioctl", "readv", "writev", "recvfrom", "recvmsg", "sendmsg", "sendto", "accept", "flock"};
  const bool is_futex = thread.call == "futex";
  if (!is_futex && std::ranges::find(kAboutFiles, thread.call) == kAboutFiles.end()) return;
  const auto argument = std::string_view(*text).substr(std::min(text->find("0x"), text->size()));
  const auto file = argument.empty() ? std::nullopt : leading_number<std::uint64_t>(argument.substr(2), 16);
  if (is_futex) thread.futex = file.value_or(0);
  if (is_futex || !file || *file > 0x7FFFFFFFU) return;
  thread.call_file = static_cast<int>(*file);
  thread.call += fmt::format("({})", thread.call_file);
}

std::optional<ThreadFacts> read_thread(const std::filesystem::path& folder, pid_t tid) {
  const auto stat = read_proc_text(folder / "stat", 2048);
  if (!stat) return std::nullopt;
  ThreadFacts thread{.tid = tid};
  const auto fields = fields_of(*stat);
  if (fields.empty() || fields[0].empty()) return std::nullopt;
  thread.state = fields[0].front();
  thread.name = one_word(folder / "comm");
  thread.wait_channel = one_word(folder / "wchan");
  if (thread.wait_channel == "0") thread.wait_channel.clear();
  read_call(folder, thread);
  return thread;
}

void read_threads(const std::filesystem::path& folder, ProcessFacts& facts) {
  auto tids = numbers_in(folder / "task");
  facts.thread_count = tids.size();
  if (const auto main = std::ranges::find(tids, facts.pid); main != tids.end())
    std::rotate(tids.begin(), main, main + 1);
  for (const pid_t tid : tids) {
    if (facts.threads.size() == kMostThreadFacts) break;
    if (auto thread = read_thread(folder / "task" / std::to_string(tid), tid)) facts.threads.push_back(*thread);
  }
}

void read_files(const std::filesystem::path& folder, ProcessFacts& facts) {
  const auto numbers = numbers_in(folder / "fd");
  for (const int number : numbers) {
    if (facts.gpu_files.size() + facts.pipes.size() >= kMostFiles) break;
    auto path = read_proc_link(folder / "fd" / std::to_string(number));
    if (path.starts_with("/dev/nvidia")) {
      facts.gpu_files.push_back({.number = number, .path = std::move(path)});
    } else if (path.starts_with("pipe:") || path.starts_with("socket:")) {
      facts.pipes.push_back({.number = number, .path = std::move(path)});
    }
  }
  facts.is_hidden = numbers.empty() && ::access((folder / "fd").c_str(), R_OK) != 0 && !facts.is_zombie();
}

void read_status(const std::filesystem::path& folder, ProcessFacts& facts) {
  const auto status = read_proc_text(folder / "status").value_or("");
  facts.user = leading_number<uid_t>(value_of(status, "Uid")).value_or(0);
  facts.resident = leading_number<std::uint64_t>(value_of(status, "VmRSS")).value_or(0) * 1024;
  facts.caught_signals = leading_number<std::uint64_t>(value_of(status, "SigCgt"), 16).value_or(0);
  facts.blocked_signals = leading_number<std::uint64_t>(value_of(status, "SigBlk"), 16).value_or(0);
}

// Reading these takes the memory lock of the process, which a thread stuck in the kernel may hold.
void read_memory(const std::filesystem::path& folder, const std::filesystem::path& proc, ProcessFacts& facts) {
  auto command = read_proc_text(folder / "cmdline", 4096).value_or("");
  while (!command.empty() && command.back() == '\0') command.pop_back();
  std::ranges::replace(command, '\0', ' ');
  facts.command = printable(command, kMostCommand);
  for (const auto& piece : read_mapped_pieces(facts.pid, proc)) {
    if (!std::filesystem::path(piece.path).filename().string().starts_with("libcuda.so")) continue;
    facts.cuda_address = piece.begin;
    break;
  }
}

}  // namespace

bool ProcessFacts::is_uninterruptible() const noexcept {
  return state == 'D' || std::ranges::any_of(threads, [](const auto& each) { return each.state == 'D'; });
}

std::optional<ProcessFacts> read_process_facts(pid_t pid, const std::filesystem::path& proc) {
  const auto folder = proc / std::to_string(pid);
  const auto stat = read_proc_text(folder / "stat", 2048);
  if (!stat) return std::nullopt;
  const auto fields = fields_of(*stat);
  if (fields.empty() || fields[0].empty()) return std::nullopt;
  ProcessFacts facts{.pid = pid,
                     .parent = field<pid_t>(fields, 1),
                     .start = field<std::uint64_t>(fields, 19),
                     .cpu_ticks = field<std::uint64_t>(fields, 11) + field<std::uint64_t>(fields, 12),
                     .state = fields[0].front()};
  read_status(folder, facts);
  read_threads(folder, facts);
  facts.executable = printable(read_proc_link(folder / "exe"), kMostCommand);
  read_files(folder, facts);
  if (!facts.is_uninterruptible() && !facts.is_zombie()) read_memory(folder, proc, facts);
  if (facts.command.empty()) {
    facts.command = "[" + printable(facts.threads.empty() ? "?" : facts.threads.front().name, kMostName) + "]";
  }
  return facts;
}

std::vector<ProcessFacts> read_tree_facts(pid_t root, const std::filesystem::path& proc, std::size_t most,
                                          std::size_t* left_out) {
  std::vector<std::pair<pid_t, pid_t>> parents;  // process, its parent
  for (const pid_t pid : numbers_in(proc)) {
    const auto stat = read_proc_text(proc / std::to_string(pid) / "stat", 2048);
    if (stat) parents.emplace_back(pid, field<pid_t>(fields_of(*stat), 1));
  }
  std::vector<ProcessFacts> tree;
  std::vector<pid_t> found = {root};
  for (std::size_t next = 0; next < found.size(); ++next) {
    const pid_t pid = found[next];
    if (tree.size() >= most) {
      if (left_out != nullptr) ++*left_out;
    } else if (auto facts = read_process_facts(pid, proc)) {
      tree.push_back(std::move(*facts));
    }
    for (const auto& [child, parent] : parents) {
      if (parent == pid && std::ranges::find(found, child) == found.end()) found.push_back(child);
    }
  }
  if (tree.empty() || tree.front().pid != root) return {};
  return tree;
}

std::optional<bool> is_same_open_file(pid_t first, int first_file, pid_t second, int second_file) {
  const auto order = ::syscall(SYS_kcmp, first, second, KCMP_FILE, first_file, second_file);
  if (order < 0) return std::nullopt;
  return order == 0;
}

bool is_likely_forked_after_cuda(const ProcessFacts& child, const ProcessFacts& parent, const SameFile& is_same) {
  if (child.parent != parent.pid || child.start < parent.start || child.executable != parent.executable) return false;
  if (!child.cuda_address || child.cuda_address != parent.cuda_address) return false;
  return std::ranges::any_of(child.gpu_files, [&](const OpenFile& file) {
    const auto theirs = std::ranges::find(parent.gpu_files, file.number, &OpenFile::number);
    if (theirs == parent.gpu_files.end() || theirs->path != file.path) return false;
    return is_same(child.pid, file.number, parent.pid, theirs->number).value_or(true);
  });
}

const char* state_text(char state) noexcept {
  switch (state) {
    case 'R': return "running";
    case 'S': return "sleeping";
    case 'D': return "in uninterruptible sleep";
    case 'T': return "stopped";
    case 't': return "stopped by a debugger";
    case 'Z': return "ended, not reaped";
    case 'X': return "ended";
    case 'I': return "idle";
    default: return "in an unknown state";
  }
}

}  // namespace drover::process
