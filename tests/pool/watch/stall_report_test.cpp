#include "pool/watch/stall_report.hpp"

#include <csignal>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "pool/watch/board_support.hpp"
#include "pool/watch/stall_support.hpp"
#include "support/temporary_folder.hpp"
#include "support/waiting_child.hpp"

namespace drover::pool {
namespace {

using namespace std::chrono_literals;
using test::process_facts;
using test::stall_facts;
using test::start_child;
using test::TestBoard;
using test::worker_facts;
using test::worker_inside;

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(StallReport, the_text_names_workers_tasks_and_causes) {
  auto worker = worker_inside("cuStreamSynchronize");
  worker.stack = {"ppoll + 0x12 in libc.so.6", "main + 0x3 in train"};
  auto facts = stall_facts(worker);
  facts.faults.push_back({.code = 31, .pci = "0000:99:00", .when = {}, .text = "NVRM: Xid (PCI:0000:99:00): 31"});
  facts.devices.push_back(test::gpu());
  const auto text = to_string(judge_stall(facts));
  for (const char* const part :
       {"pool \"train\" of process 4000",
        "worker-0 (process 5000, cuda:0): running task 118 \"resize\" for 2 min 0 s",
        "inside cuStreamSynchronize for 1 min 30 s", "sleeping in futex (kernel: futex_wait_queue), 1 thread",
        "#0 ppoll + 0x12 in libc.so.6", "#1 main + 0x3 in train",
        "likely cause: it is waiting in cuStreamSynchronize", "remedy: ", "kernel log: NVRM: Xid",
        "application (process 4000): sleeping"}) {
    EXPECT_TRUE(says(text, part)) << part << "\nis not in\n" << text;
  }
  EXPECT_TRUE(text.ends_with('\n'));
}

TEST(StallReport, only_stalled_workers_are_reported) {
  auto quick = worker_facts(1);
  quick.worker.since = 1s;
  auto stopped = worker_facts(2, WorkerState::idle);
  stopped.process = process_facts(5002, 'T');
  stopped.worker.since = 1s;
  const auto report = judge_stall(
      stall_facts(worker_facts(0, WorkerState::idle), quick, stopped, worker_facts(3, WorkerState::dead)));
  ASSERT_EQ(report.workers.size(), 1U);
  EXPECT_EQ(report.workers[0].facts.worker.slot, 2U);
  EXPECT_EQ(report.workers[0].cause->id, "process-stopped");
}

TEST(StallReport, busy_workers_do_not_alarm) {
  auto worker = worker_facts();
  worker.process = process_facts(5000, 'R');
  EXPECT_FALSE(judge_stall(stall_facts(worker)).is_alarming());
  EXPECT_TRUE(judge_stall(stall_facts(worker, worker_facts(1))).is_alarming());
  auto facts = stall_facts(worker);
  facts.application.reset();
  EXPECT_TRUE(judge_stall(facts).is_alarming());
}

TEST(StallReport, an_empty_report_says_so) {
  const auto report = judge_stall(stall_facts(worker_facts(0, WorkerState::idle)));
  EXPECT_FALSE(report.is_alarming());
  EXPECT_TRUE(says(to_string(report), "no worker is stalled"));
}

TEST(StallReport, a_missing_stack_has_a_reason) {
  auto worker = worker_facts();
  worker.stack_problem = "no answer";
  worker.worker.is_interrupted = true;
  const auto text = to_string(judge_stall(stall_facts(worker)));
  EXPECT_TRUE(says(text, "stack: none; no answer")) << text;
  EXPECT_TRUE(says(text, "it was asked to stop")) << text;
}

TEST(StallReport, stacks_of_an_interpreter_are_shown) {
  auto worker = worker_facts();
  worker.stack_problem = "asleep in poll, not disturbed";
  worker.stack_text = {"Thread 1:", "  File \"a.py\", line 3 in f"};
  const auto text = to_string(judge_stall(stall_facts(worker)));
  EXPECT_TRUE(says(text, "  in its interpreter:\n    Thread 1:\n      File \"a.py\", line 3 in f\n")) << text;
}

TEST(StallReport, long_stacks_are_truncated) {
  const auto text = stack_text(std::vector<std::string>(40, "f"), "  ");
  EXPECT_TRUE(says(text, "#11 f\n"));
  EXPECT_FALSE(says(text, "#12 f\n"));
  EXPECT_TRUE(says(text, "... 28 more"));
}

// Real processes on a board: one stopped, one computing, one asleep, one gone. None can answer.
TEST(StallReport, a_report_on_real_processes_takes_bounded_time) {
  const TestBoard board;
  auto stopped = start_child("/bin/sleep", {"1000"});
  auto busy = start_child("/bin/sh", {"-c", "while :; do :; done"});
  auto sleeper = start_child("/bin/sleep", {"1000"});
  auto ended = start_child("/bin/true", {});
  stopped.kill(SIGSTOP);
  test::facts_once(stopped.pid(), [](const auto& seen) { return seen.is_stopped(); });
  test::facts_once(sleeper.pid(), [](const auto& seen) { return seen.threads.at(0).call.ends_with("nanosleep"); });
  test::await_end(ended);
  for (const pid_t pid : {stopped.pid(), busy.pid(), sleeper.pid(), ended.pid()}) {
    board.add_worker(pid, WorkerState::running).task = 1;
  }
  const auto report = make_stall_report(*board, {.patience = 1s, .time_for_stacks = 1s});
  ASSERT_EQ(report.workers.size(), 4U);
  EXPECT_EQ(report.workers[0].cause->id, "process-stopped");
  EXPECT_EQ(report.workers[2].cause->id, "task-sleeps");
  EXPECT_EQ(report.workers[3].cause->id, "process-gone");
  EXPECT_TRUE(says(to_string(report), "it does not answer such requests"));
  EXPECT_TRUE(test::comes_true([&] {  // it may be waiting for a core
    return make_stall_report(*board, {.patience = 1s}).workers[1].cause->id == "busy";
  }));
}

TEST(StallReport, a_full_board_of_unrelated_processes_is_reported) {
  const TestBoard board;
  auto sleeper = start_child("/bin/sleep", {"1000"});
  for (std::size_t i = 0; i < kMostBoardWorkers; ++i) board.add_worker(sleeper.pid(), WorkerState::running);
  const auto report = make_stall_report(*board, {.patience = 1s, .time_for_stacks = 100ms});
  EXPECT_EQ(report.workers.size(), kMostBoardWorkers);
  EXPECT_TRUE(says(to_string(report), "too many workers wait"));
}

TEST(StallReport, old_faults_are_not_blamed) {
  const TestBoard board;
  test::TemporaryFolder folder;
  const auto log = folder.path() / "log";
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch());
  std::ofstream(log) << "4,1," << (now - 1h).count() << ",-;NVRM: Xid (PCI:0000:1b:00): 79, old\n"
                     << "4,2," << now.count() << ",-;NVRM: Xid (PCI:0000:1b:00): 31, new\n";
  const auto facts = collect_stall_facts(*board, {.kernel_log = log});
  for (const auto& fault : facts.faults) EXPECT_EQ(fault.code, 31);
}

}  // namespace
}  // namespace drover::pool
