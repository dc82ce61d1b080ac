#include "observe/tree_rules.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "pool/watch/stall_support.hpp"

namespace drover::observe {
namespace {

using test::process_facts;

process::ProcessFacts child_of(pid_t parent, pid_t pid, char state = 'S') {
  auto facts = process_facts(pid, state);
  facts.parent = parent;
  return facts;
}

process::ProcessFacts inside(process::ProcessFacts facts, std::string call, int file = -1) {
  facts.threads[0].call = std::move(call);
  facts.threads[0].call_file = file;
  return facts;
}

std::vector<std::string> ids_of(const TreeFacts& facts, pid_t pid) {
  std::vector<std::string> ids;
  for (const auto& finding : judge_process(facts, *facts.find(pid))) ids.push_back(finding.id);
  return ids;
}

using Ids = std::vector<std::string>;

TEST(TreeRules, lone_sleeper_gives_no_finding) { EXPECT_EQ(ids_of({.processes = {process_facts(10)}}, 10), Ids()); }

TEST(TreeRules, stopped_process_comes_with_the_command_that_continues_it) {
  const TreeFacts facts{.processes = {process_facts(10, 'T'), process_facts(11, 't')}};
  const auto finding = rule_stopped(facts, facts.processes[0]);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->severity, Severity::failure);
  EXPECT_NE(finding->remedy.find("kill -CONT 10"), std::string::npos);
  EXPECT_NE(rule_stopped(facts, facts.processes[1])->summary.find("debugger"), std::string::npos);
}

TEST(TreeRules, thread_stuck_in_the_kernel_is_named) {
  TreeFacts facts{.processes = {process_facts(10)}};
  facts.processes[0].threads.push_back({.tid = 12, .name = "io", .state = 'D', .wait_channel = "nfs_wait"});
  const auto finding = rule_stuck_in_kernel(facts, facts.processes[0]);
  ASSERT_TRUE(finding);
  EXPECT_NE(finding->summary.find("thread 12 is in uninterruptible sleep in nfs_wait"), std::string::npos);
}

TEST(TreeRules, fork_after_cuda) {
  TreeFacts facts{.processes = {process_facts(10), child_of(10, 11)}};
  EXPECT_FALSE(rule_cuda_after_fork(facts, facts.processes[1]));
  facts.forked = {11};
  const auto finding = rule_cuda_after_fork(facts, facts.processes[1]);
  ASSERT_TRUE(finding);
  EXPECT_NE(finding->summary.find("likely forked from process 10"), std::string::npos);
  EXPECT_NE(finding->remedy.find("spawn"), std::string::npos);
}

TEST(TreeRules, lock_that_a_thread_held_at_the_fork) {
  TreeFacts facts{.processes = {process_facts(10), child_of(10, 11)}};
  EXPECT_EQ(ids_of(facts, 11), Ids());  // its parent has one thread
  facts.processes[0].thread_count = 4;
  EXPECT_EQ(ids_of(facts, 11), Ids({"lock-after-fork"}));
  facts.processes[1].command = "other";  // it was started separately
  EXPECT_EQ(ids_of(facts, 11), Ids());
}

TEST(TreeRules, reader_that_is_the_only_writer_of_its_pipe) {
  TreeFacts facts{.processes = {inside(process_facts(10), "read(4)", 4)}};
  facts.processes[0].pipes = {{.number = 4, .path = "pipe:[7]"}};
  facts.pipes = {{.pid = 10, .pipe = "pipe:[7]", .may_read = true},
                 {.pid = 10, .pipe = "pipe:[7]", .may_write = true}};
  EXPECT_EQ(ids_of(facts, 10), Ids({"pipe-without-writer"}));
  EXPECT_EQ(rule_pipe_without_writer(facts, facts.processes[0])->severity, Severity::warning);
  EXPECT_NE(rule_pipe_without_writer(facts, facts.processes[0])->summary.find("likely"), std::string::npos);
  facts.processes[0].thread_count = 2;  // the other one may write
  EXPECT_EQ(ids_of(facts, 10), Ids());
  facts.processes[0].thread_count = 1;
  facts.pipes.push_back({.pid = 11, .pipe = "pipe:[7]", .may_write = true});
  EXPECT_EQ(ids_of(facts, 10), Ids());
  facts.pipes.resize(1);  // no process can write: it gets end of file at once
  EXPECT_EQ(ids_of(facts, 10), Ids());
  facts.processes[0].pipes[0].path = "socket:[7]";
  EXPECT_EQ(ids_of(facts, 10), Ids());
}

TEST(TreeRules, writer_names_the_process_that_does_not_read) {
  TreeFacts facts{.processes = {inside(process_facts(10), "write(4)", 4)}};
  facts.processes[0].pipes = {{.number = 4, .path = "pipe:[7]"}};
  facts.pipes = {{.pid = 11, .pipe = "pipe:[7]", .may_read = true, .description = "process 11 (cat, stopped)"}};
  const auto finding = rule_pipe_full(facts, facts.processes[0]);
  ASSERT_TRUE(finding);
  EXPECT_NE(finding->summary.find("process 11 (cat, stopped) does not read"), std::string::npos);
  facts.pipes.clear();
  EXPECT_NE(rule_pipe_full(facts, facts.processes[0])->summary.find("no other process"), std::string::npos);
}

TEST(TreeRules, parent_that_waits_for_a_lock_of_a_dead_child) {
  TreeFacts facts{.processes = {process_facts(10), child_of(10, 11, 'Z'), child_of(10, 12, 'Z')}};
  EXPECT_EQ(ids_of(facts, 10), Ids({"dead-child", "unreaped-children"}));
  EXPECT_NE(rule_dead_child(facts, facts.processes[0])->summary.find("11, 12"), std::string::npos);
  EXPECT_EQ(rule_dead_child(facts, facts.processes[0])->severity, Severity::warning);
  facts.processes[0] = inside(facts.processes[0], "clock_nanosleep");
  EXPECT_EQ(ids_of(facts, 10), Ids({"unreaped-children"}));
}

TEST(TreeRules, many_dead_children_fit_in_a_line) {
  TreeFacts facts{.processes = {process_facts(10)}};
  for (int i = 0; i < 1000; ++i) facts.processes.push_back(child_of(10, 1000 + i, 'Z'));
  EXPECT_LT(rule_unreaped_children(facts, facts.processes[0])->summary.size(), 200U);
}

TEST(TreeRules, waiting_for_children_and_computing_are_notes) {
  TreeFacts facts{.processes = {inside(process_facts(10), "wait4"), child_of(10, 11, 'R')}};
  EXPECT_EQ(ids_of(facts, 10), Ids({"waits-for-children"}));
  EXPECT_EQ(ids_of(facts, 11), Ids({"busy"}));
  EXPECT_EQ(worst(judge_process(facts, facts.processes[1])), Severity::note);
  facts.processes.pop_back();
  EXPECT_EQ(ids_of(facts, 10), Ids());
}

}  // namespace
}  // namespace drover::observe
