// observe/tree_rules.hpp: what processes wait for that know nothing of drover; private to the library.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "drover/observe/doctor.hpp"
#include "process/inspect/process_facts.hpp"

namespace drover::observe {

/// One end of a pipe in the hands of a process.
struct PipeHolder {
  pid_t pid = 0;            ///< whose
  std::string pipe;         ///< "pipe:[1234]"
  bool may_read = false;    ///< it is the end to read from
  bool may_write = false;   ///< it is the end to write to
  std::string description;  ///< "process 77 (train, stopped)"
};

/// A tree of processes and what was found out about them. A plain value: tests fill it by hand.
struct TreeFacts {
  std::vector<ProcessFacts> processes;  ///< parents before children
  std::size_t left_out = 0;             ///< processes of the tree beyond those that are looked at
  std::vector<pid_t> forked;            ///< those that were likely forked after CUDA was started
  std::vector<PipeHolder> pipes;        ///< who has the pipes in which somebody of the tree waits

  /// A process of the tree; nullptr if it is none.
  [[nodiscard]] const ProcessFacts* find(pid_t pid) const noexcept;
};

/// Looks at one process; nothing if the rule does not apply.
using TreeRule = std::optional<Finding> (*)(const TreeFacts& facts, const ProcessFacts& process);

std::optional<Finding> rule_stopped(const TreeFacts& facts, const ProcessFacts& process);
std::optional<Finding> rule_stuck_in_kernel(const TreeFacts& facts, const ProcessFacts& process);
std::optional<Finding> rule_cuda_after_fork(const TreeFacts& facts, const ProcessFacts& process);
std::optional<Finding> rule_lock_after_fork(const TreeFacts& facts, const ProcessFacts& process);
std::optional<Finding> rule_pipe_without_writer(const TreeFacts& facts, const ProcessFacts& process);
std::optional<Finding> rule_pipe_full(const TreeFacts& facts, const ProcessFacts& process);
std::optional<Finding> rule_dead_child(const TreeFacts& facts, const ProcessFacts& process);
std::optional<Finding> rule_unreaped_children(const TreeFacts& facts, const ProcessFacts& process);
std::optional<Finding> rule_waits_for_children(const TreeFacts& facts, const ProcessFacts& process);
std::optional<Finding> rule_busy(const TreeFacts& facts, const ProcessFacts& process);

/// What all rules find of one process.
[[nodiscard]] std::vector<Finding> judge_process(const TreeFacts& facts, const ProcessFacts& process);

}  // namespace drover::observe
