// drover/observe/process_doctor.hpp: what a process and those below it wait for, be they drover's or not.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "drover/observe/doctor.hpp"

namespace drover {

/// One process of a tree.
struct ProcessDiagnosis {
  pid_t pid = 0;                   ///< its id
  pid_t parent = 0;                ///< its parent's id
  std::string command;             ///< its command line, cut
  std::string state;               ///< "sleeping in futex (kernel: futex_wait_queue), 3 threads"
  std::string gpu;                 ///< "has /dev/nvidia0 open"; empty if it has none
  std::vector<std::string> stack;  ///< native, innermost first, of all threads
  std::string stack_problem;       ///< why there is none
  std::vector<Finding> findings;   ///< what is wrong with it; empty if nothing stands out
};

/// A process and all below it.
struct TreeDiagnosis {
  std::vector<ProcessDiagnosis> processes;  ///< parents before children
  std::size_t left_out = 0;                 ///< processes that were too many to be looked at
  std::vector<std::string> pools;           ///< reports of pools that one of them owns or works for
  Severity verdict = Severity::ok;          ///< the highest of all findings
};

/// How the tree is looked at.
struct ProcessDoctorOptions {
  bool has_stacks = true;                                               ///< attach a debugger, if one is installed
  std::chrono::nanoseconds time_for_stacks = std::chrono::seconds(20);  ///< all of them together
  std::chrono::nanoseconds patience = std::chrono::seconds(10);  ///< how long a worker of a pool may stand still
  std::string proc = "/proc";                                    ///< where processes are looked at
};

/// Looks and judges; with stacks each process stands still for a moment. Throws `Errc::not_found` if there is no such
/// process, `Errc::permission_denied` if this user may not look at it.
[[nodiscard]] TreeDiagnosis examine_process_tree(pid_t pid, const ProcessDoctorOptions& options = {});

}  // namespace drover
