// observe/tree_rules.hpp: rules that find out what any process waits for, whether or not it uses drover.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "drover/observe/doctor.hpp"
#include "process/inspect/process_facts.hpp"

namespace drover::observe {

/// An open end of a pipe.
struct PipeHolder {
  pid_t pid = 0;            ///< process that holds it
  std::string pipe;         ///< "pipe:[1234]"
  bool may_read = false;    ///< it is open for reading
  bool may_write = false;   ///< it is open for writing
  std::string description;  ///< "process 77 (train, stopped)"
};

/// The facts about a tree of processes. A plain value, so that tests can fill it in.
struct TreeFacts {
  std::vector<process::ProcessFacts> processes;  ///< parents before children
  std::size_t left_out = 0;                      ///< number of processes beyond the limit
  std::vector<pid_t> forked;                     ///< processes that were likely forked after CUDA was started
  std::vector<PipeHolder> pipes;                 ///< holders of the pipes on which processes of the tree wait

  /// The process with this id; nullptr if it is not in the tree.
  [[nodiscard]] const process::ProcessFacts* find(pid_t pid) const noexcept;
};

/// Judges one process; nullopt if the rule does not apply.
using TreeRule = std::optional<Finding> (*)(const TreeFacts& facts, const process::ProcessFacts& process);

std::optional<Finding> rule_stopped(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_stuck_in_kernel(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_cuda_after_fork(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_lock_after_fork(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_pipe_without_writer(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_pipe_full(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_dead_child(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_unreaped_children(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_waits_for_children(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_busy(const TreeFacts& facts, const process::ProcessFacts& process);

/// The findings of all rules for one process.
[[nodiscard]] std::vector<Finding> judge_process(const TreeFacts& facts, const process::ProcessFacts& process);

}  // namespace drover::observe
