// cli/process_doctor.hpp: the doctor for a process and its descendants.
#pragma once

#include <sys/types.h>

#include <chrono>

#include "drover/observe/doctor.hpp"

namespace drover::cli {

/// The options of `drover doctor --pid`.
struct ProcessDoctorRequest {
  pid_t pid = 0;                      ///< root of the tree
  bool is_json = false;               ///< print JSON
  bool has_stacks = true;             ///< attach a debugger
  std::chrono::milliseconds limit{};  ///< for all stacks together
};

/// Examines the tree, prints the findings, and returns the worst severity. Throws what `examine_process_tree` throws.
[[nodiscard]] Severity run_process_doctor(const ProcessDoctorRequest& request);

}  // namespace drover::cli
