// cli/process_doctor.hpp: the doctor for one process and those below it.
#pragma once

#include <sys/types.h>

#include <chrono>

#include "drover/observe/doctor.hpp"

namespace drover::cli {

/// What was asked for.
struct ProcessDoctorRequest {
  pid_t pid = 0;                      ///< top of the tree
  bool is_json = false;               ///< print JSON
  bool has_stacks = true;             ///< attach a debugger
  std::chrono::milliseconds limit{};  ///< for all stacks together
};

/// Looks at the tree, prints, and returns the worst of what was found. Throws what `examine_process_tree` throws.
[[nodiscard]] Severity run_process_doctor(const ProcessDoctorRequest& request);

}  // namespace drover::cli
