// drover/process/child_process.hpp: the owner of a process we started.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "drover/process/exit_status.hpp"
#include "drover/process/spawn_options.hpp"

namespace drover {

namespace detail {
/// How many processes the kernel has killed for lack of memory, where it says so.
struct MemoryKills {
  std::optional<std::uint64_t> of_group;    ///< in the memory cgroup of this process
  std::optional<std::uint64_t> of_machine;  ///< everywhere
};
}  // namespace detail

/// Path of the running program, to start it again in another role.
[[nodiscard]] std::string own_executable();

/// Owns a child process: destruction kills and reaps it, so that none is left behind. What the child started itself
/// is left alone: see drover/process/process_tree.hpp. Move-only; a moved-from one owns nothing. Not synchronised.
/// In a forked child a copy owns nothing either: destruction does nothing, and `wait`, `kill` and `kill_tree` throw
/// `Errc::forked`.
class ChildProcess {
 public:
  /// Starts a program, safely whatever this process has initialised and however many threads it has: nothing is
  /// copied as by fork. Blocks until the program is loaded. If it cannot be started, throws with the step that
  /// failed ("sched_setaffinity", "execve"), its subject and the program. What a Template in use can start is forked
  /// from it instead: then the template is the parent, and the rest of this class holds all the same.
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
  /// Our end of the pipe to its descriptor `number` (0, 1 or 2), which the caller owns from now on; empty if that
  /// stream is no pipe or was taken already.
  [[nodiscard]] Fd take_pipe(int number);
  /// Blocks until it has ended and returns how; nothing if the deadline passes first. Throws `Errc::not_found` if
  /// somebody else reaped it, as a program does that ignores SIGCHLD or waits for all children: then nobody knows.
  /// Nor does anybody know of one whose template was killed: `ExitStatus::unknown()`.
  [[nodiscard]] std::optional<ExitStatus> wait(Deadline deadline);
  /// Sends a signal; does nothing if it has ended. Never reaches another process, even if somebody else reaped
  /// the child and its id was given out again.
  void kill(int signal);
  /// Kills it and everything below it; see `drover::kill_tree`. It is still to be waited for.
  WaitResult kill_tree(Deadline deadline);
  /// The same for several at once, which is quicker than one after the other.
  static WaitResult kill_trees(std::span<ChildProcess* const> children, Deadline deadline);

 private:
  friend class ChildWatch;
  ChildProcess(pid_t pid, Fd pidfd) noexcept;
  [[nodiscard]] static ChildProcess spawn_by_clone(const SpawnOptions& options);
  [[nodiscard]] static std::optional<ChildProcess> spawn_by_spawner(const SpawnOptions& options);
  [[nodiscard]] ExitStatus reap_own();
  [[nodiscard]] ExitStatus reap_remote();
  [[nodiscard]] KillReason reason_of_kill() const;
  void check_process() const;
  void end() noexcept;

  pid_t pid_ = 0;
  pid_t parent_;  // who started it
  Fd pidfd_;
  Fd remote_;  // to its parent, if that is another process
  std::array<Fd, 3> pipes_;
  std::optional<ExitStatus> ended_;
  detail::MemoryKills memory_kills_before_;
  bool was_killed_by_us_ = false;
};

}  // namespace drover
