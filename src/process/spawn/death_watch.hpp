// process/spawn/death_watch.hpp: the end of this process when one it depends on has ended.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "drover/base/fd.hpp"

namespace drover {

/// A thread that waits for the end of others and then ends this process by SIGKILL, together with everything below
/// it. It notices a death however it came about, at once, and also if it happened before the watch began, since a
/// pidfd stays readable. Once begun it stays for the life of the process; all signals are blocked in it.
class DeathWatch {
 public:
  /// Begins with nobody to watch. `last_words` is called on the watching thread, before the end, with what happened;
  /// it must not throw and may not wait.
  explicit DeathWatch(std::function<void(const std::string& reason)> last_words);

  /// From now on this process ends when `pidfd` becomes readable. `reason` says what that means: "its parent, process
  /// 12, has ended". The descriptor is kept open for ever.
  void depend_on(Fd pidfd, std::string reason);
  /// The same for the parent, whose pidfd this is: who made this process, or asked a template for it. Its death is
  /// noticed within a second even if the program closes descriptors that are not its own.
  void depend_on_parent(Fd pidfd, pid_t parent, const std::string& reason);

 private:
  struct State;
  State* state_;  // never freed: the thread may outlive every static object
};

/// Kills everything below this process, says why, and kills its process group if it leads one, and itself.
[[noreturn]] void end_with_everything_below(const std::string& reason) noexcept;

}  // namespace drover
