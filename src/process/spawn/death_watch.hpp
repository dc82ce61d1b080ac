// process/spawn/death_watch.hpp: ends this process when a process it depends on has ended.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "drover/base/fd.hpp"
#include "drover/base/log.hpp"

namespace drover::process {

/// A thread that waits for the end of other processes and then kills this one and its descendants. It notices any
/// death at once, even one before the watch began, since a pidfd stays readable. It lives as long as the process and
/// blocks all signals.
class DeathWatch {
 public:
  /// Starts the thread with nothing to watch. Before the end it calls `last_words` with what happened, which must
  /// neither throw nor block.
  explicit DeathWatch(std::function<void(const std::string& reason)> last_words);

  /// Ends this process when `pidfd` becomes readable. `reason` says what that means: "its parent, process 12, has
  /// ended"; it is logged at `level`. Keeps the descriptor open forever.
  void depend_on(Fd pidfd, std::string reason, LogLevel level = LogLevel::error);
  /// Does the same for the parent: the process that started this one, directly, through a template or through others.
  /// Notices its death within a second even if the program closes descriptors that are not its own.
  void depend_on_parent(Fd pidfd, pid_t parent, const std::string& reason, LogLevel level = LogLevel::error);

 private:
  struct State;
  State* state_;  // never freed: the thread may outlive every static object
};

/// Kills all descendants, logs the reason, kills the process group if this process leads one, and then itself.
[[noreturn]] void end_with_everything_below(const std::string& reason, LogLevel level = LogLevel::error) noexcept;

}  // namespace drover::process
