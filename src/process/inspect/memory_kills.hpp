// process/inspect/memory_kills.hpp: the kernel's counts of out-of-memory kills.
#pragma once

#include <string>

#include "drover/process/child_process.hpp"

namespace drover::process {

/// The files that hold the counts; an empty path if there is none.
struct MemoryKillFiles {
  std::string of_group;    ///< memory.events (cgroup version 2) or memory.oom_control (version 1)
  std::string of_machine;  ///< /proc/vmstat
};

/// Finds the files that apply to this process below `root`.
[[nodiscard]] MemoryKillFiles find_memory_kill_files(const std::string& root = "/");

/// Reads the counts; nullopt for those that cannot be read.
[[nodiscard]] detail::MemoryKills read_memory_kills(const MemoryKillFiles& files);

/// Reads the counts of this process's cgroup and of the machine.
[[nodiscard]] detail::MemoryKills memory_kills();

/// Infers why a process died of SIGKILL from the counts before it started and after it ended.
[[nodiscard]] KillReason judge_kill(const detail::MemoryKills& before, const detail::MemoryKills& after) noexcept;

}  // namespace drover::process
