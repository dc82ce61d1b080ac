// drover/session/process.hpp: a worker process, as the process that started it sees it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/ipc/wait.hpp"
#include "drover/process/exit_status.hpp"
#include "drover/process/spawn_options.hpp"
#include "drover/session/session.hpp"

namespace drover {

/// Where the standard output and error of a worker go.
class WorkerOutput {
 public:
  /// What kinds there are.
  enum class Kind {
    forwarded,  ///< to ours, line by line, with the worker's name in front
    file,       ///< both to one file
    inherited,  ///< ours, as they are
    discarded,  ///< nowhere
  };

  /// To our own standard output and error: "[worker-2] text". A line is never mixed with another; one of more than 4
  /// KiB goes on in the next. A reader of ours who does not read holds the workers up; one who is gone does not.
  [[nodiscard]] static WorkerOutput forwarded() { return {Kind::forwarded, {}}; }
  /// Appended to a file, whatever becomes of this process. The path starts at our working folder.
  [[nodiscard]] static WorkerOutput file(std::string path) { return {Kind::file, std::move(path)}; }
  /// Written by the worker itself to where ours goes.
  [[nodiscard]] static WorkerOutput inherited() { return {Kind::inherited, {}}; }
  /// Lost.
  [[nodiscard]] static WorkerOutput discarded() { return {Kind::discarded, {}}; }

  /// Which of them it is.
  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  /// The path of a file; else empty.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  WorkerOutput(Kind kind, std::string path) : kind_(kind), path_(std::move(path)) {}

  Kind kind_;
  std::string path_;
};

/// What a worker runs, and how.
struct ProcessOptions {
  std::string entry;                                             ///< what it runs: an `Entry` or its name
  std::vector<std::string> arguments;                            ///< Worker::arguments
  std::string name;                                              ///< for people; empty: "worker-N"
  std::vector<std::pair<std::string, std::string>> environment;  ///< set on top of ours
  std::vector<std::string> unset;                                ///< variables of ours that it does not get
  Placement placement;                                           ///< CPUs, limits, niceness, folder
  WorkerOutput output = WorkerOutput::forwarded();               ///< where what it prints goes
};

/// Owns a worker: a process that runs an entry of this program as a participant of a session. It leads a terminal
/// session of its own, so that Ctrl-C reaches the application alone. It does not outlive this process, nor the
/// keeper, however they end; whatever it starts itself is killed when it ends. Destruction kills it with everything
/// below it. In a forked child every call throws `Errc::forked`, and destruction does nothing. Move-only; a
/// moved-from one owns nothing. Not synchronised. docs/processes.md has the table of what happens when somebody dies.
class Process {
 public:
  /// Starts a worker and returns when it is loaded, not when it has joined: many can be started at once. Throws
  /// `Errc::not_found`, naming those that exist, if there is no such entry; `Errc::invalid_argument` unless
  /// drover::init was called; what ChildProcess::spawn and Session::invite throw.
  [[nodiscard]] static Process start(Session session, const ProcessOptions& options);

  /// Takes over what `other` owned.
  Process(Process&& other) noexcept;
  /// Ends what was owned, then takes over what `other` owned.
  Process& operator=(Process&& other) noexcept;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  /// As in ProcessOptions.
  [[nodiscard]] const std::string& name() const;
  /// Its process id; names no other process before `wait` has returned how it ended.
  [[nodiscard]] pid_t pid() const;
  /// Readable when it has ended; for poll and epoll.
  [[nodiscard]] int pidfd() const;
  /// Until it has ended: wait({queue, worker}, deadline).
  operator WaitSource() const { return WaitSource::readable(pidfd()); }  // NOLINT(google-explicit-constructor)

  /// Waits until the worker has joined the session and begins its entry. If it ends before that, throws
  /// `Errc::peer_lost` with how it ended, why, and the last lines of its standard error.
  WaitResult wait_ready(Deadline deadline);
  /// Waits until it has ended, what it printed is passed on, and what it left behind is killed. Returns how it ended;
  /// nothing if it has not ended by the deadline. One that has ended is cleaned up after however long that takes:
  /// usually milliseconds, some seconds if what it left does not die. Throws `Errc::not_found` if somebody else
  /// reaped it, as a program does that ignores SIGCHLD or waits for all children.
  [[nodiscard]] std::optional<ExitStatus> wait(Deadline deadline);
  /// Sends a signal to the worker alone; does nothing if it has ended.
  void kill(int signal);
  /// Ends it: SIGTERM, and after `grace` SIGKILL to it and everything below it. Returns how it ended. Throws
  /// `Errc::timed_out` if it does not die even so, being stuck in the kernel.
  ExitStatus end(std::chrono::milliseconds grace = std::chrono::seconds(5));

  /// What the worker said before it failed: the exception that left its entry, or why it had to end. Empty if it said
  /// nothing, as one that was killed.
  [[nodiscard]] const std::string& failure();
  /// The last lines of its standard error, 4 KiB at most, if its output is forwarded or goes to a file.
  [[nodiscard]] std::string error_tail() const;
  /// For people: "worker-2 (process 71) exited with status 70: std::runtime_error: no such model".
  [[nodiscard]] std::string describe();

 private:
  class State;
  explicit Process(std::unique_ptr<State> state) noexcept;
  [[nodiscard]] State& state() const;
  ExitStatus end_by(Deadline deadline);
  ExitStatus await_killed(Deadline deadline);
  friend void end_all(std::vector<Process>& workers, std::chrono::milliseconds grace);

  std::unique_ptr<State> state_;
};

/// Starts a worker for each of `options`, without waiting for any. If one cannot be started, those before it are
/// ended.
[[nodiscard]] std::vector<Process> start_all(const Session& session, const std::vector<ProcessOptions>& options);

/// Ends all workers at the same time, with one `grace` for all: SIGTERM to each, then as `Process::end`. Goes through
/// all of them whatever happens, and then throws the first error.
void end_all(std::vector<Process>& workers, std::chrono::milliseconds grace = std::chrono::seconds(5));

}  // namespace drover
