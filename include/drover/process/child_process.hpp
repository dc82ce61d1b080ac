// drover/process/child_process.hpp: owns a started process.
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

namespace drover::process {
class ChildWatch;
}  // namespace drover::process

namespace drover {

namespace detail {
/// Numbers of processes that the kernel has killed for lack of memory; nullopt if unknown.
struct MemoryKills {
  std::optional<std::uint64_t> of_group;    ///< in the memory cgroup of this process
  std::optional<std::uint64_t> of_machine;  ///< on the machine
};
}  // namespace detail

/// The path of the running program, for starting it again in another role.
[[nodiscard]] std::string own_executable();

/// Owns a child process: destruction kills and reaps it. It does not kill the descendants of the child; see
/// drover/process/process_tree.hpp. Move-only; a moved-from object owns nothing. Not synchronised. In a forked child
/// destruction does nothing, and `wait`, `kill` and `kill_tree` throw `Errc::forked`.
class ChildProcess {
 public:
  /// Starts a program without forking, which is safe whatever this process has initialised and however many threads
  /// it has. Blocks until the program is loaded. On failure throws with the step ("sched_setaffinity", "execve"), its
  /// subject and the program. If a Template is in use and can start the program, forks it from the template, which
  /// then is its parent; this class behaves the same.
  [[nodiscard]] static ChildProcess spawn(const SpawnOptions& options);

  /// Takes over the child of `other`.
  ChildProcess(ChildProcess&& other) noexcept;
  /// Kills and reaps the child that was owned, then takes over the other.
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  /// Its process id, which is not reused before it is reaped.
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Readable once it has ended; for poll and epoll.
  [[nodiscard]] int pidfd() const noexcept { return pidfd_.get(); }
  /// Takes this process's end of the pipe to its descriptor `number` (0, 1 or 2); empty if that stream is not a pipe
  /// or was taken before.
  [[nodiscard]] Fd take_pipe(int number);
  /// Blocks until it has ended and returns its exit status; nullopt if the deadline passes first. Throws
  /// `Errc::not_found` if other code reaped it, as in a program that ignores SIGCHLD or waits for all children.
  /// Returns `ExitStatus::unknown()` if its template was killed first.
  [[nodiscard]] std::optional<ExitStatus> wait(Deadline deadline);
  /// Sends a signal; does nothing if it has ended. Never reaches another process, even if the child was reaped and
  /// its id reused.
  void kill(int signal);
  /// Kills it and its descendants; see `drover::kill_tree`. Does not reap it.
  WaitResult kill_tree(Deadline deadline);
  /// Kills several trees at once, which is faster than one by one.
  static WaitResult kill_trees(std::span<ChildProcess* const> children, Deadline deadline);

 private:
  friend class process::ChildWatch;
  ChildProcess(pid_t pid, Fd pidfd) noexcept;
  [[nodiscard]] static ChildProcess spawn_by_clone(const SpawnOptions& options);
  [[nodiscard]] static std::optional<ChildProcess> spawn_by_spawner(const SpawnOptions& options);
  [[nodiscard]] ExitStatus reap_own();
  [[nodiscard]] ExitStatus reap_remote();
  [[nodiscard]] KillReason reason_of_kill() const;
  void check_process() const;
  void end() noexcept;

  pid_t pid_ = 0;
  pid_t parent_;  // process that started it
  Fd pidfd_;
  Fd remote_;  // socket to its template, if one forked it
  std::array<Fd, 3> pipes_;
  std::optional<ExitStatus> ended_;
  detail::MemoryKills memory_kills_before_;
  bool was_killed_by_us_ = false;
};

}  // namespace drover
