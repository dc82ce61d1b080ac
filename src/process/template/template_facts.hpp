// process/template/template_facts.hpp: what a template inherited from the application, and whether it still matches.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "process/spawn/spawn_plan.hpp"

namespace drover::process {

/// Attributes that a process inherits from its parent and that cannot be set later.
struct TemplateFacts {
  uid_t user = 0;
  uid_t effective_user = 0;
  gid_t group = 0;
  gid_t effective_group = 0;
  pid_t process_group = 0;
  pid_t session = 0;
  std::string root;                    ///< root directory
  std::string rights;                  ///< users, groups, capabilities and seccomp filters, as the kernel prints them
  std::vector<std::string> variables;  ///< variables that are read when a library loads, sorted

  bool operator==(const TemplateFacts& other) const = default;
};

/// The current facts of this process, with the null-terminated environment ("NAME=value") of a child.
[[nodiscard]] TemplateFacts template_facts(std::span<char* const> variables);

/// The current facts of this process, with its own environment.
[[nodiscard]] TemplateFacts template_facts_now();

/// Whether a variable is read when a library or the interpreter loads and cannot be changed later. False for numbers
/// of threads, which can.
[[nodiscard]] bool is_read_at_load(std::string_view assignment);

/// All limits that a child of this process would have: those of the plan, and for the rest those of this process.
[[nodiscard]] std::vector<std::pair<int, KernelLimit>> limits_of_child(const SpawnPlan& plan);

/// The umask of this process, read without changing it.
[[nodiscard]] mode_t creation_mask();

}  // namespace drover::process
