// process/template/template_facts.hpp: what of this process a template has taken over, and whether it still is so.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "process/spawn/spawn_plan.hpp"

namespace drover {

/// What a process has from its parent and cannot be given later.
struct TemplateFacts {
  uid_t user = 0;
  uid_t effective_user = 0;
  gid_t group = 0;
  gid_t effective_group = 0;
  pid_t process_group = 0;
  pid_t session = 0;
  std::string root;                    ///< the folder that is '/' for it
  std::string rights;                  ///< users, groups, capabilities and filters, as the kernel shows them
  std::vector<std::string> variables;  ///< those that are read when a library loads, sorted

  bool operator==(const TemplateFacts& other) const = default;
};

/// Of this process now, with this environment ("NAME=value", ends with a null pointer) for a child.
[[nodiscard]] TemplateFacts template_facts(std::span<char* const> variables);

/// Of this process now, with its own environment.
[[nodiscard]] TemplateFacts template_facts_now();

/// Whether a variable is read when a library or the interpreter loads, so that it cannot be changed later. Numbers of
/// threads can.
[[nodiscard]] bool is_read_at_load(std::string_view assignment);

/// All limits of this process, with those of the plan in their place: as a child of ours would have them.
[[nodiscard]] std::vector<std::pair<int, KernelLimit>> limits_of_child(const SpawnPlan& plan);

/// The umask of this process, read without changing it.
[[nodiscard]] mode_t creation_mask();

}  // namespace drover
