// observe/process_doctor.hpp: what a process and its descendants wait for, whether or not they use drover.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "drover/observe/doctor.hpp"

namespace drover::observe {

/// One process of a tree.
struct ProcessDiagnosis {
  pid_t pid = 0;                    ///< process id
  pid_t parent = 0;                 ///< process id of its parent
  std::string command;              ///< its command line, shortened
  std::string state;                ///< "sleeping in futex (kernel: futex_wait_queue), 3 threads"
  std::string gpu;                  ///< "has /dev/nvidia0 open"; empty if it has none
  std::vector<std::string> python;  ///< Python frames of all its Python threads, innermost first; one per line
  std::vector<std::string> stack;   ///< native, innermost first, of all threads
  std::string stack_problem;        ///< why there is no stack
  std::vector<Finding> findings;    ///< what is wrong with it, if anything
};

/// A process and all its descendants.
struct TreeDiagnosis {
  std::vector<ProcessDiagnosis> processes;  ///< parents before children
  std::size_t left_out = 0;                 ///< number of processes beyond the limit, which were not examined
  std::vector<std::string> pools;           ///< reports of the pools that these processes own or work for
  Severity verdict = Severity::ok;          ///< the highest of all findings
};

/// Options of `examine_process_tree`.
struct ProcessDoctorOptions {
  bool has_stacks = true;                                               ///< attach a debugger, if one is installed
  std::chrono::nanoseconds time_for_stacks = std::chrono::seconds(20);  ///< for all of them together
  std::chrono::nanoseconds patience = std::chrono::seconds(10);  ///< how long a worker of a pool may make no progress
  std::string proc = "/proc";                                    ///< the proc file system
};

/// Examines a process and its descendants; with stacks, each process is stopped for a moment. Throws
/// `Errc::invalid_argument` unless `pid` is positive, `Errc::not_found` if there is no such process, and
/// `Errc::permission_denied` if this user may not inspect it.
[[nodiscard]] TreeDiagnosis examine_process_tree(pid_t pid, const ProcessDoctorOptions& options = {});

}  // namespace drover::observe
