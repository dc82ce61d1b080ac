// process/inspect/memory_kills.hpp: what the kernel tells of processes it killed for lack of memory.
#pragma once

#include <string>

#include "drover/process/child_process.hpp"

namespace drover {

/// The files that hold the counts; an empty path where there is none.
struct MemoryKillFiles {
  std::string of_group;    ///< memory.events (cgroup version 2) or memory.oom_control (version 1)
  std::string of_machine;  ///< /proc/vmstat
};

/// Looks for the files of this process below `root`.
[[nodiscard]] MemoryKillFiles find_memory_kill_files(const std::string& root = "/");

/// Reads the counts; what cannot be read is nothing.
[[nodiscard]] detail::MemoryKills read_memory_kills(const MemoryKillFiles& files);

/// The counts of this process's own group and machine.
[[nodiscard]] detail::MemoryKills memory_kills();

/// Why a process that ended by SIGKILL was killed, as far as the counts before it started and after it ended tell.
[[nodiscard]] KillReason judge_kill(const detail::MemoryKills& before, const detail::MemoryKills& after) noexcept;

}  // namespace drover
