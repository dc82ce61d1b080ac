// process/spawn/init_state.hpp: whether drover::init was called in this process, and how to start the program
// again.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "drover/base/mutex.hpp"
#include "drover/process/child_process.hpp"

namespace drover::process {

/// How to start processes of this program in a role.
struct StartCommand {
  std::string executable;              ///< of workers
  std::vector<std::string> arguments;  ///< before all others
  std::string keeper;                  ///< path of the keeper program
};

namespace impl {
inline std::atomic<bool> is_initialised{false};
inline Mutex command_mutex;
inline StartCommand command DROVER_GUARDED_BY(command_mutex);
}  // namespace impl

/// Called by drover::init once it is known that this process has no role.
inline void set_initialised() noexcept { impl::is_initialised = true; }

/// Whether drover::init was called. Without it this program, started again in a role, would run its own main.
[[nodiscard]] inline bool was_initialised() noexcept { return impl::is_initialised; }

/// Sets the command of a program that another executable hosts.
inline void set_start_command(StartCommand command) {
  const MutexLock lock(impl::command_mutex);
  impl::command = std::move(command);
}

/// The command that was set; by default this executable without arguments.
[[nodiscard]] inline StartCommand start_command() {
  const MutexLock lock(impl::command_mutex);
  if (!impl::command.executable.empty()) return impl::command;
  const std::string own = own_executable();
  return {.executable = own, .arguments = {}, .keeper = own};
}

}  // namespace drover::process
