#include "observe/process_doctor.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "pool/watch/board_support.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"
#include "support/waiting_child.hpp"

namespace drover::observe {
namespace {

using namespace std::chrono_literals;
using test::expect_error;
using test::facts_once;
using test::start_child;

TreeDiagnosis examine(pid_t pid) { return examine_process_tree(pid, {.has_stacks = false}); }

bool has_finding(const ProcessDiagnosis& process, const std::string& id) {
  return std::ranges::any_of(process.findings, [&](const auto& finding) { return finding.id == id; });
}

TEST(ProcessDoctor, no_such_process_is_an_error) {
  expect_error(Errc::not_found, [] { static_cast<void>(examine(0x7FFFFFF0)); }, {"there is no process 2147483632"});
  expect_error(Errc::invalid_argument, [] { static_cast<void>(examine(0)); });
}

TEST(ProcessDoctor, process_of_another_user_is_an_error) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may inspect every process";
  expect_error(Errc::permission_denied, [] { static_cast<void>(examine(1)); }, {"process 1 belongs to user 0"});
}

// Such a process has a directory in /proc, but its descriptors cannot be listed.
TEST(ProcessDoctor, process_whose_files_cannot_be_listed_is_an_error) {
  const test::TemporaryFolder proc;
  std::filesystem::create_directories(proc.path() / "77");
  std::ofstream(proc.path() / "77/stat") << "77 (x) S 1 0 0\n";
  std::ofstream(proc.path() / "77/status") << "Uid:\t12 12 12 12\n";
  expect_error(Errc::permission_denied,
               [&] { static_cast<void>(examine_process_tree(77, {.has_stacks = false, .proc = proc.path()})); },
               {"process 77 belongs to user 12", "as root"});
}

TEST(ProcessDoctor, stopped_child_of_a_waiting_shell_is_found) {
  auto shell = start_child("/bin/sh", {"-c", "sleep 1000 & wait"});
  EXPECT_TRUE(test::comes_true([&] {
    const auto tree = examine(shell.pid());
    return tree.processes.size() == 2 && tree.processes[1].command == "sleep 1000";
  }));
  ::kill(examine(shell.pid()).processes[1].pid, SIGSTOP);
  EXPECT_TRUE(test::comes_true([&] { return has_finding(examine(shell.pid()).processes[1], "stopped"); }));
  const auto tree = examine(shell.pid());
  EXPECT_EQ(tree.verdict, Severity::failure);
  EXPECT_EQ(tree.processes[0].pid, shell.pid());
  EXPECT_EQ(tree.processes[1].parent, shell.pid());
  EXPECT_EQ(tree.processes[1].command, "sleep 1000");
  EXPECT_NE(tree.processes[1].state.find("stopped"), std::string::npos);
  static_cast<void>(shell.kill_tree(Deadline::after(60s)));
}

TEST(ProcessDoctor, child_that_was_not_reaped_is_found) {
  auto shell = start_child("/bin/sh", {"-c", "sleep 0 & exec sleep 1000"});
  EXPECT_TRUE(test::comes_true([&] { return has_finding(examine(shell.pid()).processes[0], "unreaped-children"); }));
  EXPECT_EQ(examine(shell.pid()).verdict, Severity::warning);
}

TEST(ProcessDoctor, reader_whose_writer_is_gone_is_found) {
  // The program keeps both ends of its pipe open, like one that forgets to close the write end.
  const std::string script = "import os; r, w = os.pipe(); os.read(r, 1)";
  if (::access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "there is no python3";
  auto reader = start_child("/usr/bin/python3", {"-c", script});
  EXPECT_TRUE(
      test::comes_true([&] { return has_finding(examine(reader.pid()).processes[0], "pipe-without-writer"); }));
}

TEST(ProcessDoctor, writer_into_a_full_pipe_names_the_reader) {
  auto shell = start_child("/bin/sh", {"-c", "yes | sleep 1000"});
  EXPECT_TRUE(test::comes_true([&] {
    const auto tree = examine(shell.pid());
    return std::ranges::any_of(tree.processes, [](const auto& process) {
      return std::ranges::any_of(process.findings, [](const auto& finding) {
        return finding.id == "pipe-full" && finding.summary.find("sleep 1000") != std::string::npos;
      });
    });
  }));
  static_cast<void>(shell.kill_tree(Deadline::after(60s)));
}

TEST(ProcessDoctor, examining_process_is_left_out_of_the_tree) {
  const auto tree = examine_process_tree(::getppid(), {.has_stacks = false});
  EXPECT_EQ(tree.processes[0].pid, ::getppid());
  EXPECT_TRUE(std::ranges::none_of(tree.processes, [](const auto& each) { return each.pid == ::getpid(); }));
  EXPECT_EQ(examine_process_tree(::getpid()).processes[0].pid, ::getpid());
}

TEST(ProcessDoctor, sleeper_is_not_stuck) {
  auto sleeper = start_child("/bin/sleep", {"1000"});
  facts_once(sleeper.pid(), [](const auto& seen) { return seen.threads.at(0).call.ends_with("nanosleep"); });
  const auto tree = examine(sleeper.pid());
  EXPECT_EQ(tree.verdict, Severity::ok);
  EXPECT_TRUE(tree.pools.empty());
  EXPECT_EQ(tree.processes[0].gpu, "");
}

TEST(ProcessDoctor, stacks_or_the_reason_for_their_absence_are_given) {
  auto sleeper = start_child("/bin/sleep", {"1000"});
  const auto tree = examine_process_tree(sleeper.pid(), {.time_for_stacks = 60s});
  EXPECT_NE(tree.processes[0].stack.empty(), tree.processes[0].stack_problem.empty());
  const auto hurried = examine_process_tree(sleeper.pid(), {.time_for_stacks = 0s});
  EXPECT_NE(hurried.processes[0].stack_problem, "");
}

TEST(ProcessDoctor, pool_that_a_process_works_for_is_judged) {
  const test::TestBoard board;
  SpawnOptions options{.executable = "/bin/sleep", .arguments = {"1000"}};
  options.inherit = {{board.file().get(), 9}};
  auto worker = ChildProcess::spawn(options);
  worker.kill(SIGSTOP);
  facts_once(worker.pid(), [](const auto& seen) { return seen.is_stopped(); });
  board.add_worker(worker.pid(), pool::WorkerState::running);
  const auto tree = examine(worker.pid());
  ASSERT_EQ(tree.pools.size(), 1U);
  EXPECT_NE(tree.pools[0].find("was stopped by a signal"), std::string::npos) << tree.pools[0];
  EXPECT_EQ(tree.verdict, Severity::failure);
}

}  // namespace
}  // namespace drover::observe
