// drover/process/child_process.hpp: the owner of a process we started.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "drover/process/exit_status.hpp"

namespace drover {

/// What to start and what it is given.
struct SpawnOptions {
  std::string executable;                                        ///< path of the program
  std::vector<std::string> arguments;                            ///< without the program's name
  std::vector<std::pair<std::string, std::string>> environment;  ///< set on top of ours
  std::vector<std::pair<int, int>> inherit;  ///< (our descriptor, its number in the child); nothing else goes over
};

/// Path of the running program, to start it again in another role.
[[nodiscard]] std::string own_executable();

/// Owns a child process: destruction kills and reaps it, so that none is left behind. Move-only; a moved-from
/// one owns nothing. Not synchronised.
class ChildProcess {
 public:
  /// Starts a program by posix_spawn, which is safe whatever this process has initialised. Throws if it cannot
  /// be started.
  [[nodiscard]] static ChildProcess spawn(const SpawnOptions& options);

  /// Takes over what `other` owned.
  ChildProcess(ChildProcess&& other) noexcept;
  /// Kills and reaps what was owned, then takes over what `other` owned.
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  /// Its process id; stays ours until it is reaped, so it cannot name another process.
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Readable when it has ended; for poll and epoll.
  [[nodiscard]] int pidfd() const noexcept { return pidfd_.get(); }
  /// Blocks until it has ended and returns how; nothing if the deadline passes first.
  [[nodiscard]] std::optional<ExitStatus> wait(Deadline deadline);
  /// Sends a signal; does nothing if it has ended. Never reaches another process, even if somebody else reaped
  /// the child and its id was given out again.
  void kill(int signal);

 private:
  ChildProcess(pid_t pid, Fd pidfd) noexcept : pid_(pid), pidfd_(std::move(pidfd)) {}
  void end() noexcept;

  pid_t pid_ = 0;
  Fd pidfd_;
  std::optional<ExitStatus> ended_;
};

}  // namespace drover
