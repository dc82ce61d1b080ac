// process/spawn/init_state.hpp: whether drover::init was called in this process, and how the program is started
// again.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "drover/base/mutex.hpp"
#include "drover/process/child_process.hpp"

namespace drover {

/// How processes of this program are started in a role.
struct StartCommand {
  std::string executable;              ///< of workers
  std::vector<std::string> arguments;  ///< in front of all others
  std::string keeper;                  ///< path of the program that becomes a keeper
};

namespace detail {
inline std::atomic<bool> is_initialised{false};
inline Mutex command_mutex;
inline StartCommand command DROVER_GUARDED_BY(command_mutex);
}  // namespace detail

/// What drover::init does once it has seen that the process is to play no role of drover's.
inline void set_initialised() noexcept { detail::is_initialised = true; }

/// Whether it was called. Without it this program, started again in a role, would run its own main instead.
[[nodiscard]] inline bool was_initialised() noexcept { return detail::is_initialised; }

/// For programs that another executable hosts.
inline void set_start_command(StartCommand command) {
  const MutexLock lock(detail::command_mutex);
  detail::command = std::move(command);
}

/// What was set; else this executable, without arguments.
[[nodiscard]] inline StartCommand start_command() {
  const MutexLock lock(detail::command_mutex);
  if (!detail::command.executable.empty()) return detail::command;
  const std::string own = own_executable();
  return {.executable = own, .arguments = {}, .keeper = own};
}

}  // namespace drover
