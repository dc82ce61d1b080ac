#include "support/supervisor.hpp"

#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/config.hpp"
#include "drover/base/clock.hpp"
#include "support/leftovers.hpp"
#include "support/process_tree.hpp"
#include "support/runner.hpp"

namespace drover::test {
namespace {

constexpr std::chrono::seconds kDefaultTimeout{240};
constexpr std::chrono::seconds kStacksTimeout{90};
constexpr std::chrono::seconds kGrace{3};
constexpr std::chrono::milliseconds kPause{10};

template <class... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::print(stderr, "supervisor: {}\n", fmt::format(format, std::forward<Arguments>(arguments)...));
  static_cast<void>(std::fflush(stderr));
}

// The signals that the supervisor waits for synchronously.
sigset_t awaited_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, signal);
  return signals;
}

// posix_spawn with no signal blocked. In a separate process group, so that Ctrl-C of a terminal reaches the
// supervisor alone, which then ends the run in order. Returns 0 if the program cannot be started.
pid_t spawn_in_group(const char* program, char** argv) {
  sigset_t none;
  ::sigemptyset(&none);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, program, nullptr, &attributes, argv, environ);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) say("{} cannot be started: {}", program, ::strerror(error));
  return error == 0 ? pid : 0;
}

pid_t spawn_runner(char** argv) {
  ::setenv(kRunnerVariable, std::to_string(::getpid()).c_str(), 1);
  return spawn_in_group(std::filesystem::read_symlink("/proc/self/exe").c_str(), argv);
}

// Reaps all ended children; returns the wait status of `awaited` if it was among them.
std::optional<int> reap(pid_t awaited) {
  std::optional<int> found;
  int status = 0;
  while (const pid_t pid = ::waitpid(-1, &status, WNOHANG)) {
    if (pid < 0) break;
    if (pid == awaited) found = status;
  }
  return found;
}

// Kills all descendants of the supervisor. It adopts the children of each killed process, hence the loop.
void end_descendants() {
  const auto patience = Deadline::after(kGrace);
  for (auto left = descendants_of(::getpid()); !left.empty(); left = descendants_of(::getpid())) {
    for (const auto& process : left) ::kill(process.pid, SIGKILL);
    reap(0);
    if (patience.has_passed()) {
      say("{} processes do not die", left.size());
      return;
    }
    std::this_thread::sleep_for(kPause);
  }
}

bool print_debugger_stacks(pid_t root) {
  std::string script = DROVER_SCRIPTS_DIR "/hang_stacks.py";
  if (::access(script.c_str(), R_OK) != 0) return false;
  std::string interpreter = "python3";
  std::string pid_text = std::to_string(root);
  std::array<char*, 4> arguments = {interpreter.data(), script.data(), pid_text.data(), nullptr};
  const pid_t pid = spawn_in_group("python3", arguments.data());
  if (pid == 0) return false;
  const auto patience = Deadline::after(kStacksTimeout);
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (patience.has_passed()) return false;
    std::this_thread::sleep_for(kPause);
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The supervisor's children are the runner and the orphans of the run.
int end_hung_run(std::chrono::seconds limit) {
  say("the tests did not end within {} s (DROVER_TEST_TIMEOUT); stacks of all their processes follow", limit.count());
  for (const auto& process : descendants_of(::getpid())) {
    if (process.parent != ::getpid() || print_debugger_stacks(process.pid)) continue;
    say("no debugger printed stacks; the kernel reports:\n{}", kernel_stacks_of(process.pid));
  }
  end_descendants();
  say("the run was ended because it hung");
  return kTimedOut;
}

int end_cancelled_run(int signal) {
  say("ended by signal {}; ending the tests", signal);
  end_descendants();
  return 128 + signal;
}

int exit_status_of(int wait_status) {
  if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status);
  say("the runner was killed by signal {} ({})", WTERMSIG(wait_status), ::strsignal(WTERMSIG(wait_status)));
  return 128 + WTERMSIG(wait_status);
}

// Processes that die with the runner get a moment to do so.
std::vector<ProcessEntry> survivors() {
  const auto patience = Deadline::after(kGrace);
  for (;;) {
    reap(0);
    auto left = descendants_of(::getpid());
    if (left.empty() || patience.has_passed()) return left;
    std::this_thread::sleep_for(kPause);
  }
}

bool clear_survivors(const std::set<std::string>& names_before) {
  bool is_clean = true;
  for (const auto& process : survivors()) {
    say("left behind: a process: {}", to_string(process));
    is_clean = false;
  }
  end_descendants();
  for (const auto& name : shared_memory_names()) {
    if (names_before.contains(name)) continue;
    say("left behind: a name of shared memory: {}", name);
    remove_shared_memory_name(name);
    is_clean = false;
  }
  return is_clean;
}

}  // namespace

int supervise(char** argv) {
  const std::chrono::seconds limit(
      environment_number("DROVER_TEST_TIMEOUT", kDefaultTimeout.count(), 1, 24L * 60 * 60));
  const auto names_before = shared_memory_names();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const sigset_t awaited = awaited_signals();
  ::sigprocmask(SIG_BLOCK, &awaited, nullptr);
  const pid_t runner = spawn_runner(argv);
  if (runner == 0) return 1;

  const auto deadline = Deadline::after(limit);
  std::optional<int> ended;
  while (!(ended = reap(runner))) {
    const auto left = deadline.remaining();
    if (left.count() == 0) return end_hung_run(limit);
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    const timespec pause{.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
    const int signal = ::sigtimedwait(&awaited, nullptr, &pause);
    if (signal > 0 && signal != SIGCHLD) return end_cancelled_run(signal);
  }
  const int status = exit_status_of(*ended);
  const bool is_clean = clear_survivors(names_before);
  return status == 0 && !is_clean ? kLeftBehind : status;
}

}  // namespace drover::test
