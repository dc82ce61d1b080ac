// drover/process/child_process.hpp: starts processes, learns how they ended, and kills them with their descendants.
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
#include "drover/process/spawn_options.hpp"

namespace drover::process {
class ChildWatch;
}  // namespace drover::process

namespace drover {

/// The known reason of a SIGKILL.
enum class KillReason {
  unknown,        ///< not known
  out_of_memory,  ///< the kernel's count of OOM kills rose while it ran
  somebody,       ///< that count did not rise: another process sent the signal
  parent,         ///< its parent sent it
};

/// How a process ended: with a status, by a signal, or unknown.
class ExitStatus {
 public:
  /// Returned from main or called exit.
  [[nodiscard]] static ExitStatus exited(int status) noexcept { return {status, false, false}; }
  /// Was ended by a signal.
  [[nodiscard]] static ExitStatus killed(int signal, bool dumped_core = false,
                                         KillReason reason = KillReason::unknown) noexcept {
    ExitStatus status(signal, true, dumped_core);
    status.reason_ = reason;
    return status;
  }

  /// Ended in an unknown way, since the template that started it died first.
  [[nodiscard]] static ExitStatus unknown() noexcept {
    ExitStatus status(0, false, false);
    status.is_known_ = false;
    return status;
  }

  /// Whether it exited with status 0.
  [[nodiscard]] bool is_success() const noexcept { return is_known_ && !is_signal_ && value_ == 0; }
  /// The exit status; nullopt if a signal ended it or it is unknown.
  [[nodiscard]] std::optional<int> status() const noexcept {
    return is_signal_ || !is_known_ ? std::nullopt : std::optional(value_);
  }
  /// The signal that ended it; nullopt if it exited.
  [[nodiscard]] std::optional<int> signal() const noexcept {
    return is_signal_ ? std::optional(value_) : std::nullopt;
  }
  /// The known reason of a SIGKILL; `unknown` for any other end.
  [[nodiscard]] KillReason reason() const noexcept { return reason_; }
  /// A text such as "exited with status 3", "killed by SIGKILL (requested by its parent)".
  [[nodiscard]] std::string to_string() const;

  /// Compares kind and number. Ignores core dumps and kill reasons, which depend on the machine.
  bool operator==(const ExitStatus& other) const noexcept {
    return value_ == other.value_ && is_signal_ == other.is_signal_ && is_known_ == other.is_known_;
  }

 private:
  ExitStatus(int value, bool is_signal, bool dumped_core) noexcept
      : value_(value), is_signal_(is_signal), dumped_core_(dumped_core) {}

  int value_;
  bool is_signal_;
  bool dumped_core_;
  bool is_known_ = true;
  KillReason reason_ = KillReason::unknown;
};

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
/// `kill_tree`. Move-only; a moved-from object owns nothing. Not synchronised. In a forked child
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
  std::string mark_;  // of its descendants, if it is watched
  detail::MemoryKills memory_kills_before_;
  bool was_killed_by_us_ = false;
};

/// Kills a process, its descendants, and the members of the session that it leads, if any. Stops them first where
/// they could otherwise start another unnoticed, then kills them. Also finds daemons and processes in sessions of
/// their own, provided that `root` adopts orphans, as workers do (PR_SET_CHILD_SUBREAPER), or that the processes in
/// between are alive. Signals never reach a process that reuses an id.
///
/// `pidfd` refers to `root` too. If `root` has ended, kills what is left of its session; if it has been reaped, kills
/// only processes with its mark. Does not reap `root`, but reaps orphans that this process adopts at its end. Returns
/// `timed_out` if some do not die before the deadline, as when stuck in the kernel, or if descendants cannot be found
/// because too many files are open; `root` is killed even then.
WaitResult kill_tree(pid_t root, int pidfd, Deadline deadline);

/// Kills all descendants of this process. If it adopts orphans, kills without stopping first, so that none is left
/// stopped if this process is killed meanwhile. Works even if another thread closes descriptors that are not its own.
/// The keeper of an unnamed session that this process started is a descendant too, so the session ends as if its
/// keeper had been killed.
WaitResult kill_descendants(Deadline deadline);

}  // namespace drover
