#include "pool/watch/stall_rules.hpp"

#include <chrono>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "pool/watch/stall_support.hpp"

namespace drover::pool {
namespace {

using test::gpu;
using test::process_facts;
using test::stall_facts;
using test::worker_facts;
using test::worker_inside;

std::string id_of(const std::optional<StallCause>& cause) { return cause ? cause->id : ""; }

// The cause of the first worker by all rules.
StallCause judged(const StallFacts& facts) {
  const auto cause = stall::cause_of(facts, facts.workers.at(0));
  EXPECT_TRUE(cause);
  if (!cause) return {};
  EXPECT_FALSE(cause->text.empty());
  EXPECT_FALSE(cause->remedy.empty());
  return *cause;
}

bool rule_says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(StallRules, report_a_process_that_is_gone_or_a_zombie) {
  auto worker = worker_facts();
  worker.process.reset();
  EXPECT_EQ(judged(stall_facts(worker)).id, "process-gone");
  worker.process = process_facts(5000, 'Z');
  EXPECT_EQ(judged(stall_facts(worker)).id, "process-gone");
  worker.worker.state = WorkerState::dead;  // noticed
  EXPECT_EQ(id_of(stall::process_gone(stall_facts(worker), worker)), "");
}

TEST(StallRules, report_a_stopped_process_with_the_command_to_resume_it) {
  auto worker = worker_inside("cuStreamSynchronize");
  worker.process = process_facts(5000, 'T');
  const auto cause = judged(stall_facts(worker));
  EXPECT_EQ(cause.id, "process-stopped");
  EXPECT_TRUE(rule_says(cause.remedy, "kill -CONT 5000"));
  worker.process = process_facts(5000, 't');
  EXPECT_TRUE(rule_says(judged(stall_facts(worker)).text, "debugger"));
}

TEST(StallRules, report_an_xid_of_the_worker_s_gpu) {
  auto facts = stall_facts(worker_inside("cuStreamSynchronize"));
  facts.faults.push_back({.code = 79, .pci = "0000:1b:00", .when = {}, .text = "NVRM: Xid"});
  facts.devices.push_back(gpu());
  auto cause = judged(facts);
  EXPECT_EQ(cause.id, "gpu-fault");
  EXPECT_TRUE(rule_says(cause.text, "Xid 79"));
  EXPECT_TRUE(rule_says(cause.text, "fallen off the bus"));
  facts.faults[0].pci = "0000:77:00";  // another GPU
  EXPECT_EQ(judged(facts).id, "waits-for-device");
  facts.faults[0].pci = "0000:1b:00";
  facts.devices.clear();  // unknown GPU
  EXPECT_EQ(judged(facts).id, "waits-for-device");
}

TEST(StallRules, a_reset_is_advised_only_for_faults_that_condemn_the_gpu) {
  auto facts = stall_facts(worker_inside("cuStreamSynchronize"));
  facts.devices.push_back(gpu());
  facts.faults.push_back({.code = 13, .pci = "0000:1b:00", .when = {}, .text = ""});
  facts.faults.push_back({.code = 31, .pci = "0000:1b:00", .when = {}, .text = ""});
  auto cause = judged(facts);
  EXPECT_TRUE(rule_says(cause.text, "Xid 31")) << cause.text;  // the newest
  EXPECT_FALSE(rule_says(cause.remedy, "--gpu-reset")) << cause.remedy;
  facts.faults.push_back({.code = 94, .pci = "0000:1b:00", .when = {}, .text = ""});
  facts.faults.push_back({.code = 79, .pci = "0000:1b:00", .when = {}, .text = ""});
  facts.faults.push_back({.code = 45, .pci = "0000:1b:00", .when = {}, .text = ""});  // of the killed programs
  cause = judged(facts);
  EXPECT_TRUE(rule_says(cause.text, "Xid 79")) << cause.text;
  EXPECT_TRUE(rule_says(cause.remedy, "--gpu-reset")) << cause.remedy;
}

TEST(StallRules, a_call_that_has_just_begun_is_no_cause) {
  for (const char* const call : {"cuStreamSynchronize", "cuInit", "queue.put", "queue.get", "cuLaunchKernel"}) {
    auto worker = worker_inside(call);
    worker.worker.inside_since = std::chrono::milliseconds(10);
    EXPECT_EQ(judged(stall_facts(worker)).id, "task-sleeps") << call;
    auto facts = stall_facts(worker);
    facts.patience = std::chrono::milliseconds(5);  // less than a second
    EXPECT_NE(judged(facts).id, "task-sleeps") << call;
  }
}

TEST(StallRules, report_a_driver_call_that_does_not_return) {
  for (const char* const call : {"cuModuleLoadData", "cuLaunchKernel", "nvmlInit_v2"}) {
    auto worker = worker_inside(call);
    worker.process = process_facts(5000, 'R');  // it spins in the driver
    const auto cause = judged(stall_facts(worker));
    EXPECT_EQ(cause.id, "driver-stuck") << call;
    EXPECT_TRUE(rule_says(cause.text, std::string("does not return from ") + call)) << cause.text;
  }
}

TEST(StallRules, an_uninterruptible_sleep_names_the_kernel_function) {
  auto worker = worker_inside("cuMemAlloc");
  worker.process = process_facts(5000, 'D');
  worker.process->threads[0].wait_channel = "nvidia_ioctl";
  auto cause = judged(stall_facts(worker));
  EXPECT_EQ(cause.id, "stuck-in-kernel");
  EXPECT_TRUE(rule_says(cause.text, "in nvidia_ioctl"));
  EXPECT_TRUE(rule_says(cause.text, "a call of the GPU's driver does not return"));
  EXPECT_TRUE(rule_says(cause.text, "likely")) << cause.text;
  worker.process->threads[0].wait_channel = "rpc_wait_bit_killable";
  EXPECT_TRUE(rule_says(judged(stall_facts(worker)).text, "network file system"));
  worker.worker.since = std::chrono::seconds(1);  // short uninterruptible sleeps are normal
  EXPECT_EQ(id_of(stall::uninterruptible(stall_facts(worker), worker)), "");
}

TEST(StallRules, cuda_after_fork_is_reported_as_likely) {
  auto worker = worker_inside("cuMemAlloc");
  worker.is_forked_after_cuda = true;
  const auto cause = judged(stall_facts(worker));
  EXPECT_EQ(cause.id, "cuda-after-fork");
  EXPECT_TRUE(rule_says(cause.text, "likely forked"));
  EXPECT_TRUE(rule_says(cause.remedy, "spawn"));
}

TEST(StallRules, context_creation_is_blocked_by_exclusive_mode) {
  auto facts = stall_facts(worker_inside("cuDevicePrimaryCtxRetain", WorkerState::starting));
  facts.devices.push_back(gpu(ComputeMode::exclusive_process));
  facts.gpu_users.push_back(process_facts(777));
  auto cause = judged(facts);
  EXPECT_EQ(cause.id, "context-blocked");
  EXPECT_TRUE(rule_says(cause.text, "exclusive-process"));
  EXPECT_TRUE(rule_says(cause.text, "process 777 (train --all)"));
  EXPECT_TRUE(rule_says(cause.remedy, "nvidia-smi -c 0"));
  facts.devices[0] = gpu();
  facts.gpu_users.clear();
  cause = judged(facts);
  EXPECT_EQ(cause.id, "context-blocked");
  EXPECT_FALSE(rule_says(cause.text, "exclusive"));
  for (int i = 0; i < 100; ++i) facts.gpu_users.push_back(process_facts(i));
  EXPECT_LT(judged(facts).text.size(), 600U);
}

TEST(StallRules, a_sender_waits_for_an_application_that_takes_no_results) {
  auto facts = stall_facts(worker_inside("queue.put", WorkerState::sending));
  auto cause = judged(facts);
  EXPECT_EQ(cause.id, "reader-stuck");
  EXPECT_TRUE(rule_says(cause.text, "process 4000, sleeping"));
  facts.application = process_facts(4000, 'T');
  EXPECT_TRUE(rule_says(judged(facts).remedy, "kill -CONT 4000"));
  facts.application.reset();
  EXPECT_EQ(judged(facts).id, "reader-gone");
}

TEST(StallRules, a_sender_may_wait_for_its_device_first) {
  const auto facts = stall_facts(worker_inside("cuStreamSynchronize", WorkerState::sending));
  EXPECT_EQ(judged(facts).id, "waits-for-device");
}

TEST(StallRules, a_sender_that_does_not_wait_for_room_does_not_blame_the_reader) {
  auto worker = worker_facts(0, WorkerState::sending);
  EXPECT_EQ(id_of(stall::reader_stuck(stall_facts(worker), worker)), "");
  worker.process = process_facts(5000, 'R');
  EXPECT_EQ(judged(stall_facts(worker)).id, "busy");
}

TEST(StallRules, report_a_task_that_puts_into_a_full_queue) {
  EXPECT_EQ(judged(stall_facts(worker_inside("queue.put"))).id, "queue-full");
  EXPECT_EQ(judged(stall_facts(worker_inside("pipe.send"))).id, "queue-full");
}

TEST(StallRules, report_a_wait_for_the_device) {
  for (const char* const call :
       {"cuStreamSynchronize", "cuEventSynchronize", "cuMemcpyDtoH_v2", "cuMemFree_v2", "stream.synchronize"}) {
    const auto cause = judged(stall_facts(worker_inside(call)));
    EXPECT_EQ(cause.id, "waits-for-device") << call;
    EXPECT_TRUE(rule_says(cause.text, call));
    EXPECT_TRUE(rule_says(cause.text, "cuda:0"));
  }
  EXPECT_TRUE(rule_says(judged(stall_facts(worker_inside("timeline.wait"))).text, "another process"));
}

TEST(StallRules, report_a_wait_for_another_process) {
  for (const char* const wait : {"queue.get", "lock", "semaphore", "condition", "event", "barrier", "wait"}) {
    const auto cause = judged(stall_facts(worker_inside(wait)));
    EXPECT_EQ(cause.id, "waits-for-peer") << wait;
    EXPECT_TRUE(rule_says(cause.text, "no other worker")) << cause.text;
  }
  const auto cause = judged(stall_facts(worker_inside("barrier"), worker_facts(1)));
  EXPECT_TRUE(rule_says(cause.text, "one other worker is running a task"));
  const auto idle = worker_inside("queue.get", WorkerState::idle);  // no stall
  EXPECT_EQ(id_of(stall::cause_of(stall_facts(idle), idle)), "");
}

TEST(StallRules, report_a_slow_start) {
  EXPECT_EQ(judged(stall_facts(worker_facts(0, WorkerState::starting))).id, "starts-slowly");
}

TEST(StallRules, report_a_slow_end) {
  auto worker = worker_facts(0, WorkerState::ending);
  EXPECT_EQ(judged(stall_facts(worker)).id, "ends-slowly");
  worker.worker.since = std::chrono::seconds(1);
  EXPECT_EQ(id_of(stall::ends_slowly(stall_facts(worker), worker)), "");
}

TEST(StallRules, a_computing_task_is_busy) {
  auto worker = worker_facts();
  worker.process = process_facts(5000, 'R');
  auto cause = judged(stall_facts(worker));
  EXPECT_EQ(cause.id, "busy");
  EXPECT_TRUE(cause.is_harmless);
  EXPECT_TRUE(rule_says(cause.text, "busy, not stuck"));
  worker.process = process_facts(5000, 'S');
  worker.process->threads.push_back({.tid = 5001, .name = "omp", .state = 'R'});
  cause = judged(stall_facts(worker));
  EXPECT_EQ(cause.id, "busy");
  EXPECT_TRUE(rule_says(cause.text, "another thread of its process is computing"));
}

TEST(StallRules, report_a_task_that_sleeps_outside_of_drover) {
  const auto cause = judged(stall_facts(worker_facts()));
  EXPECT_EQ(cause.id, "task-sleeps");
  EXPECT_TRUE(rule_says(cause.text, "futex"));
  EXPECT_FALSE(cause.is_harmless);
}

TEST(StallRules, report_an_application_that_is_gone_or_stopped) {
  auto facts = stall_facts(worker_facts(0, WorkerState::idle));
  EXPECT_TRUE(stall::causes_of_pool(facts).empty());
  facts.application = process_facts(4000, 'T');
  EXPECT_EQ(id_of(stall::application_stopped(facts)), "application-stopped");
  facts.application.reset();
  EXPECT_EQ(id_of(stall::application_gone(facts)), "application-gone");
  EXPECT_EQ(id_of(stall::application_stopped(facts)), "");
}

TEST(StallRules, report_tasks_without_workers) {
  auto facts = stall_facts(worker_facts(0, WorkerState::dead));
  EXPECT_EQ(id_of(stall::no_workers(facts)), "no-workers");
  facts.board.in_flight = 0;
  EXPECT_EQ(id_of(stall::no_workers(facts)), "");
  facts = stall_facts(worker_facts(0, WorkerState::dead), worker_facts(1, WorkerState::starting));
  EXPECT_EQ(id_of(stall::no_workers(facts)), "");
}

TEST(StallRules, idle_workers_with_pending_tasks_are_a_bug) {
  auto facts = stall_facts(worker_facts(0, WorkerState::idle), worker_facts(1, WorkerState::idle));
  facts.board.pending = 3;
  const auto cause = stall::idle_with_tasks(facts);
  ASSERT_TRUE(cause);
  EXPECT_TRUE(rule_says(cause->remedy, "please report"));
  auto busy = facts;
  busy.workers[0].worker.state = WorkerState::running;
  EXPECT_EQ(id_of(stall::idle_with_tasks(busy)), "");
  auto fresh = facts;
  fresh.workers[1].worker.since = {};
  EXPECT_EQ(id_of(stall::idle_with_tasks(fresh)), "");
  facts.application = process_facts(4000, 'T');  // covered by another rule
  EXPECT_EQ(id_of(stall::idle_with_tasks(facts)), "");
}

}  // namespace
}  // namespace drover::pool
