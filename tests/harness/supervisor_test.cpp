#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "base/config.hpp"
#include "drover/base/fd.hpp"
#include "fixture_run.hpp"
#include "support/process_tree.hpp"
#include "support/supervisor.hpp"

namespace drover::test {
namespace {

namespace fs = std::filesystem;

bool is_on_path(const std::string& program) {
  const auto path = environment("PATH").value_or("");
  for (std::size_t begin = 0; begin <= path.size();) {
    const auto end = std::min(path.find(':', begin), path.size());
    if (::access((fs::path(path.substr(begin, end - begin)) / program).c_str(), X_OK) == 0) return true;
    begin = end + 1;
  }
  return false;
}

// Whether a debugger is installed and the kernel lets it attach to processes that allow it.
bool can_debug() {
  int scope = 0;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  return scope <= 1 && is_on_path("gdb") && is_on_path("python3") && fs::exists(DROVER_SCRIPTS_DIR "/hang_stacks.py");
}

void expect_stacks(const ProgramResult& result) {
  EXPECT_EQ(result.status, ExitStatus::exited(kTimedOut)) << result.output;
  expect_contains(result.output, "the tests did not end within 2 s (DROVER_TEST_TIMEOUT)");
  expect_contains(result.output, "harness_fixture");
  if (can_debug()) {
    expect_contains(result.output, "wait_here_for_ever");
  } else {
    expect_contains(result.output, "State:");
  }
}

// Sends `signal` to the supervisor as soon as the hanging test has printed its pid.
OutputWatcher signal_supervisor_when_hanging(int signal, pid_t& runner) {
  return [signal, &runner](ChildProcess& supervisor, const std::string& output) {
    const std::string mark = "runner is ";
    const auto at = output.find(mark);
    if (runner != 0 || at == std::string::npos || output.find('\n', at) == std::string::npos) return;
    runner = static_cast<pid_t>(std::stol(output.substr(at + mark.size())));
    supervisor.kill(signal);
  };
}

// Blocks until the process has ended; it is not our child, so there is nothing to reap.
void wait_for_end(pid_t pid) {
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.is_open()) return;
  pollfd ended{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  while (::poll(&ended, 1, -1) != 1) continue;
}

TEST(Supervisor, hang_ends_with_stacks) {
  expect_stacks(run_fixture("Hangs.in_a_function", {{"DROVER_TEST_TIMEOUT", "2"}}));
}

TEST(Supervisor, hang_of_a_peer_process_ends_with_its_stack) {
  const auto result = run_fixture("Hangs.in_a_peer", {{"DROVER_TEST_TIMEOUT", "2"}});
  expect_stacks(result);
  expect_contains(result.output, "body=hang_in_peer");
}

TEST(Supervisor, kernel_stacks_name_threads_states_and_commands) {
  const auto child = ChildProcess::spawn({.executable = "/bin/sleep", .arguments = {"1000"}});
  while (kernel_stacks_of(::getpid()).find("sleep 1000") == std::string::npos) continue;
  const auto text = kernel_stacks_of(::getpid());
  expect_contains(text, "process " + std::to_string(::getpid()));
  expect_contains(text, "process " + std::to_string(child.pid()) + ": /bin/sleep 1000");
  expect_contains(text, "State:");
}

TEST(Supervisor, grandchild_of_a_killed_runner_is_named_and_ended) {
  const auto result = run_fixture("Dies.by_sigkill_while_a_grandchild_lives");
  EXPECT_EQ(result.status, ExitStatus::exited(128 + SIGKILL)) << result.output;
  expect_contains(result.output, "supervisor: the runner was killed by signal 9");
  expect_contains(result.output, "supervisor: left behind: a process: pid ");
  expect_contains(result.output, "sleep 1000");
}

TEST(Supervisor, peers_of_a_killed_runner_die_with_it) {
  const auto result = run_fixture("Dies.by_sigkill_with_peers");
  EXPECT_EQ(result.status, ExitStatus::exited(128 + SIGKILL)) << result.output;
  EXPECT_EQ(result.output.find("left behind"), std::string::npos) << result.output;
}

TEST(Supervisor, crash_of_the_runner_is_named) {
  const auto result = run_fixture("Dies.by_abort");
  EXPECT_EQ(result.status, ExitStatus::exited(128 + SIGABRT)) << result.output;
  expect_contains(result.output, "supervisor: the runner was killed by signal 6");
}

TEST(Supervisor, termination_ends_the_runner) {
  pid_t runner = 0;
  const auto result = run_fixture("Hangs.in_a_function", {}, signal_supervisor_when_hanging(SIGTERM, runner));
  EXPECT_EQ(result.status, ExitStatus::exited(128 + SIGTERM)) << result.output;
  ASSERT_NE(runner, 0);
  EXPECT_EQ(::kill(runner, 0), -1) << "process " << runner << " still exists";
}

TEST(Supervisor, runner_dies_with_a_killed_supervisor) {
  pid_t runner = 0;
  const auto result = run_fixture("Hangs.in_a_function", {}, signal_supervisor_when_hanging(SIGKILL, runner));
  EXPECT_EQ(result.status, ExitStatus::killed(SIGKILL)) << result.output;
  ASSERT_NE(runner, 0);
  wait_for_end(runner);
}

TEST(Supervisor, unsupervised_run_is_one_process) {
  const auto result = run_fixture("Dies.by_abort", {{"DROVER_TEST_UNSUPERVISED", "1"}});
  EXPECT_EQ(result.status.signal(), SIGABRT) << result.status.to_string();
}

TEST(Supervisor, timeout_that_is_not_a_number_is_an_error) {
  const auto result = run_fixture("Behaves.well", {{"DROVER_TEST_TIMEOUT", "soon"}});
  EXPECT_EQ(result.status, ExitStatus::exited(2));
  expect_contains(result.output, "DROVER_TEST_TIMEOUT=soon");
}

}  // namespace
}  // namespace drover::test
