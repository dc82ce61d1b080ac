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

/// A thread that waits on a word in memory that processes share.
struct SharedWait {
  pid_t pid = 0;               ///< its process
  pid_t tid = 0;               ///< the thread
  std::string word;            ///< the word: its file and its offset there
  bool is_standard = false;    ///< a POSIX semaphore, as the locks of multiprocessing are; otherwise drover's
  std::vector<pid_t> sharers;  ///< of a standard one: the other processes that have it
  std::string object;          ///< of drover's: "lock lock:1:64:7"
  std::string holder;          ///< of a lock of drover: "process 77 (worker-1, sleeping), thread 2"; empty if unknown
};

/// The facts about a tree of processes. A plain value, so that tests can fill it in.
struct TreeFacts {
  std::vector<process::ProcessFacts> processes;  ///< parents before children
  std::size_t left_out = 0;                      ///< number of processes beyond the limit
  std::vector<pid_t> forked;                     ///< processes that were likely forked after CUDA was started
  std::vector<PipeHolder> pipes;                 ///< holders of the pipes on which processes of the tree wait
  std::vector<SharedWait> shared_waits;          ///< waits on words that processes share

  /// The process with this id; nullptr if it is not in the tree.
  [[nodiscard]] const process::ProcessFacts* find(pid_t pid) const noexcept;
};

/// Judges one process; nullopt if the rule does not apply.
using TreeRule = std::optional<Finding> (*)(const TreeFacts& facts, const process::ProcessFacts& process);

std::optional<Finding> rule_stopped(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_stuck_in_kernel(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_cuda_after_fork(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_lock_after_fork(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_abandoned_lock(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_standard_pool(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_drover_wait(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_pipe_without_writer(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_pipe_full(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_dead_child(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_unreaped_children(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_waits_for_children(const TreeFacts& facts, const process::ProcessFacts& process);
std::optional<Finding> rule_busy(const TreeFacts& facts, const process::ProcessFacts& process);

/// The findings of all rules for one process.
[[nodiscard]] std::vector<Finding> judge_process(const TreeFacts& facts, const process::ProcessFacts& process);

}  // namespace drover::observe
