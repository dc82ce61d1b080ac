// Rules about locks that processes share, on facts written by hand.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "observe/tree_rules.hpp"
#include "pool/watch/stall_support.hpp"

namespace drover::observe {
namespace {

using test::process_facts;
using Names = std::vector<std::string>;

Names names_of(const TreeFacts& facts, pid_t pid) {
  Names ids;
  for (const auto& finding : judge_process(facts, *facts.find(pid))) ids.push_back(finding.id);
  return ids;
}

SharedWait standard(pid_t pid, std::vector<pid_t> sharers, std::string word = "5:0") {
  return {.pid = pid, .tid = pid, .word = std::move(word), .is_standard = true, .sharers = std::move(sharers)};
}

// A process with the threads of a pool, whose main thread waits, and its workers 11 to 13, which wait for a lock.
TreeFacts idle_pool() {
  TreeFacts facts{.processes = {process_facts(10)}};
  facts.processes[0].thread_count = 4;
  facts.processes[0].threads[0].futex = 0x1000;
  for (const pid_t pid : {11, 12, 13}) {
    auto worker = process_facts(pid);
    worker.parent = 10;
    worker.start = 1000;
    facts.processes.push_back(worker);
  }
  facts.shared_waits = {standard(11, {10, 12, 13}), standard(12, {10, 11, 13}), standard(13, {10, 11, 12})};
  return facts;
}

// Worker 13 has the lock and reads the queue.
TreeFacts pool_that_reads() {
  TreeFacts facts = idle_pool();
  facts.shared_waits.pop_back();
  facts.processes[3].threads[0].call = "read(4)";
  return facts;
}

TEST(LockRules, lock_that_no_other_process_has_is_abandoned) {
  TreeFacts facts{.processes = {process_facts(10)}, .shared_waits = {standard(10, {})}};
  const auto finding = rule_abandoned_lock(facts, facts.processes[0]);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->severity, Severity::failure);
  EXPECT_NE(finding->summary.find("no other living process has"), std::string::npos);
  facts.processes[0].thread_count = 2;
  EXPECT_EQ(rule_abandoned_lock(facts, facts.processes[0])->severity, Severity::warning)
      << "the other may release it";
  facts.shared_waits[0].sharers = {11};
  EXPECT_EQ(names_of(facts, 10), Names());
}

TEST(LockRules, lock_of_the_processes_is_not_blamed_on_a_fork) {
  const TreeFacts facts = idle_pool();
  for (const pid_t worker : {11, 12, 13}) EXPECT_EQ(names_of(facts, worker), Names());
  TreeFacts private_lock = facts;
  private_lock.shared_waits.clear();
  EXPECT_EQ(names_of(private_lock, 11), Names({"lock-after-fork"}));
}

TEST(LockRules, pool_whose_workers_all_wait_for_a_lock_has_lost_the_one_that_held_it) {
  TreeFacts facts = idle_pool();
  EXPECT_EQ(names_of(facts, 10), Names({"standard-pool"}));
  const auto finding = rule_standard_pool(facts, facts.processes[0]);
  EXPECT_EQ(finding->severity, Severity::warning);
  EXPECT_NE(finding->summary.find("11, 12, 13"), std::string::npos);
  EXPECT_NE(finding->summary.find("none of them reads"), std::string::npos);
  facts.processes[3].threads[0].call = "clock_nanosleep";
  facts.shared_waits.pop_back();
  EXPECT_EQ(names_of(facts, 10), Names()) << "the worker that works may hold the lock";
}

TEST(LockRules, pool_with_a_worker_that_was_started_later_has_likely_lost_a_task) {
  TreeFacts facts = pool_that_reads();
  EXPECT_EQ(names_of(facts, 10), Names()) << "it waits for tasks";
  facts.processes[2].start = 5000;
  const auto finding = rule_standard_pool(facts, facts.processes[0]);
  ASSERT_TRUE(finding);
  EXPECT_NE(finding->summary.find("process 12 was started later"), std::string::npos);
  facts.processes[0].threads[0].futex = 0;
  EXPECT_EQ(names_of(facts, 10), Names()) << "the program does something else";
}

TEST(LockRules, lock_of_drover_names_its_holder) {
  TreeFacts facts{.processes = {process_facts(10)}};
  facts.shared_waits = {
      {.pid = 10, .tid = 10, .object = "lock lock:1:64:7", .holder = "process 77 (worker-1, sleeping), thread 2"}};
  const auto finding = rule_drover_wait(facts, facts.processes[0]);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->severity, Severity::note);
  EXPECT_EQ(finding->summary,
            "thread 10 is waiting for drover's lock lock:1:64:7, held by process 77 (worker-1, sleeping), thread 2");
}

TEST(LockRules, death_of_a_child_does_not_explain_a_wait_for_a_lock_of_drover) {
  auto child = process_facts(11, 'Z');
  child.parent = 10;
  TreeFacts facts{.processes = {process_facts(10), child}};
  EXPECT_EQ(names_of(facts, 10), Names({"dead-child", "unreaped-children"}));
  facts.shared_waits = {{.pid = 10, .tid = 10, .object = "event event:1:64:7"}};
  EXPECT_EQ(names_of(facts, 10), Names({"unreaped-children", "drover-wait"}));
}

TEST(LockRules, processes_of_drover_itself_give_no_warnings) {
  auto child = process_facts(11, 'Z');
  child.parent = 10;
  TreeFacts facts{.processes = {process_facts(10), child}};
  for (const char* const command : {"/usr/bin/drover --drover-role=keeper --drover-keeper-idle-limit=3600",
                                    "python -c from drover._template_main import main; main() {}"}) {
    facts.processes[0].command = command;
    EXPECT_EQ(names_of(facts, 10), Names());
  }
  facts.processes[0].state = 'T';
  EXPECT_EQ(names_of(facts, 10), Names({"stopped"})) << "that is never right";
}

}  // namespace
}  // namespace drover::observe
