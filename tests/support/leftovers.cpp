#include "support/leftovers.hpp"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <filesystem>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/config.hpp"
#include "drover/base/clock.hpp"
#include "support/process_tree.hpp"

namespace drover::test {
namespace {

namespace fs = std::filesystem;

struct Registry {
  std::vector<std::pair<std::string, std::function<std::string()>>> checks;
  std::vector<std::string> ignored_prefixes;
};

Registry& registry() {
  static Registry everything;
  return everything;
}

bool is_ignored(const std::string& target) {
  return std::ranges::any_of(registry().ignored_prefixes,
                             [&](const std::string& prefix) { return target.starts_with(prefix); });
}

fs::path shared_memory_folder() { return environment("DROVER_TEST_SHM_DIR").value_or("/dev/shm"); }

// Children in any state, because the test must reap them. Of the orphans only those alive, because the adopter reaps
// the others.
std::vector<ProcessEntry> owned_processes(pid_t adopter) {
  const pid_t self = ::getpid();
  if (adopter == 0) return descendants_of(self);
  auto found = descendants_of({self, adopter});
  std::set<pid_t> ours = {self};
  for (const auto& process : found) {  // nearest first: parents come before their children
    if (ours.contains(process.parent)) ours.insert(process.pid);
  }
  std::erase_if(found, [&](const ProcessEntry& process) {
    return process.pid == self || (!ours.contains(process.pid) && process.is_zombie());
  });
  return found;
}

std::vector<ProcessEntry> new_processes(const Surroundings& before, pid_t adopter) {
  auto found = owned_processes(adopter);
  std::erase_if(found, [&](const ProcessEntry& process) { return before.processes.contains(process.pid); });
  return found;
}

// Descendants that die with their parent need a moment to do so; our own children do not.
std::vector<ProcessEntry> settled_processes(const Surroundings& before, pid_t adopter) {
  const auto patience = Deadline::after(std::chrono::seconds(3));
  auto found = new_processes(before, adopter);
  const auto is_child = [](const ProcessEntry& process) { return process.parent == ::getpid(); };
  while (!found.empty() && std::ranges::none_of(found, is_child) && !patience.has_passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    found = new_processes(before, adopter);
  }
  return found;
}

void end_processes(const std::vector<ProcessEntry>& processes) {
  for (const auto& process : processes) ::kill(process.pid, SIGKILL);
  for (const auto& process : processes) {
    if (process.parent == ::getpid()) ::waitpid(process.pid, nullptr, 0);
  }
}

}  // namespace

Surroundings look_around(pid_t adopter) {
  Surroundings now{.descriptors = open_descriptors(), .processes = {}, .names = shared_memory_names()};
  for (const auto& process : owned_processes(adopter)) now.processes.insert(process.pid);
  return now;
}

std::vector<std::string> clear_leftovers(Surroundings& before, pid_t adopter) {
  const auto processes = settled_processes(before, adopter);
  std::vector<std::string> left;
  left.reserve(processes.size());
  for (const auto& process : processes) left.push_back("a process: " + to_string(process));
  end_processes(processes);
  auto descriptors = open_descriptors();
  for (const auto& [number, target] : descriptors) {
    const auto known = before.descriptors.find(number);
    if (known != before.descriptors.end() && known->second == target) continue;
    if (!is_ignored(target)) left.push_back(fmt::format("an open descriptor: {} -> {}", number, target));
  }
  before.descriptors = std::move(descriptors);
  for (const auto& name : shared_memory_names()) {
    if (before.names.contains(name)) continue;
    left.push_back("a name of shared memory: " + name);
    remove_shared_memory_name(name);
  }
  for (const auto& [name, check] : registry().checks) {
    if (const auto complaint = check(); !complaint.empty()) left.push_back(fmt::format("{}: {}", name, complaint));
  }
  return left;
}

void add_leftover_check(std::string name, std::function<std::string()> check) {
  registry().checks.emplace_back(std::move(name), std::move(check));
}

void ignore_descriptors(std::string prefix) { registry().ignored_prefixes.push_back(std::move(prefix)); }

std::map<int, std::string> open_descriptors() {
  std::map<int, std::string> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  if (!folder) throw std::system_error(errno, std::generic_category(), "/proc/self/fd");
  while (const dirent* const entry = ::readdir(folder.get())) {
    if (entry->d_name[0] == '.') continue;
    const int number = std::stoi(entry->d_name);
    std::array<char, PATH_MAX> target{};
    const auto length = ::readlinkat(::dirfd(folder.get()), entry->d_name, target.data(), target.size());
    if (number == ::dirfd(folder.get()) || length < 0) continue;
    found.emplace(number, std::string(target.data(), static_cast<std::size_t>(length)));
  }
  return found;
}

std::set<std::string> shared_memory_names() {
  std::set<std::string> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(shared_memory_folder(), missing)) {
    if (auto name = entry.path().filename().string(); name.starts_with("drover")) found.insert(std::move(name));
  }
  return found;
}

void remove_shared_memory_name(const std::string& name) {
  std::error_code gone;
  fs::remove_all(shared_memory_folder() / name, gone);
}

}  // namespace drover::test
