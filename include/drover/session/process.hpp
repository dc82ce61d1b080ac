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
#include "drover/process/child_process.hpp"
#include "drover/process/spawn_options.hpp"
#include "drover/session/session.hpp"

namespace drover {

/// The destination of a worker's standard output and error.
class WorkerOutput {
 public:
  /// The kinds of destination.
  enum class Kind {
    forwarded,  ///< to the starter's, line by line, prefixed with the worker's name
    file,       ///< both to one file
    inherited,  ///< the starter's, unchanged
    discarded,  ///< nowhere
  };

  /// Forwards to the standard output and error of this process: "[worker-2] text". Lines are never interleaved; a
  /// line of more than 4 KiB continues on the next. A reader that stops reading blocks the workers; one that is gone
  /// does not.
  [[nodiscard]] static WorkerOutput forwarded() { return {Kind::forwarded, {}}; }
  /// Appends to a file, even after this process has ended. A relative path starts at the current working directory.
  [[nodiscard]] static WorkerOutput file(std::string path) { return {Kind::file, std::move(path)}; }
  /// The worker writes directly to the standard output and error of this process.
  [[nodiscard]] static WorkerOutput inherited() { return {Kind::inherited, {}}; }
  /// Discards all output.
  [[nodiscard]] static WorkerOutput discarded() { return {Kind::discarded, {}}; }

  /// The kind of destination.
  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  /// The path if the destination is a file; otherwise empty.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  WorkerOutput(Kind kind, std::string path) : kind_(kind), path_(std::move(path)) {}

  Kind kind_;
  std::string path_;
};

/// What a worker runs and how.
struct ProcessOptions {
  std::string entry;                                             ///< an `Entry` or its name
  std::vector<std::string> arguments;                            ///< Worker::arguments
  std::string name;                                              ///< for messages; empty: "worker-N"
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to that of this process
  std::vector<std::string> unset;                                ///< variables to remove
  Placement placement;                                           ///< CPUs, limits, niceness, directory
  WorkerOutput output = WorkerOutput::forwarded();               ///< destination of its output
};

/// Owns a worker: a process that runs an entry of this program as a participant of a session.
///
/// ```
/// #include <drover/drover.hpp>
/// #include <iostream>
///
/// const auto greet = drover::entry("greet", [](drover::Worker& worker) {
///   std::cout << "hello from " << worker.name() << '\n';
/// });
///
/// int main(int argc, char** argv) {
///   drover::init(argc, argv);  // in the worker this call runs the entry and never returns
///   const auto session = drover::Session::start();
///   auto worker = drover::Process::start(session, {.entry = greet});
///   const auto status = worker.wait(drover::Deadline::never());
///   return status && status->is_success() ? 0 : 1;
/// }
/// ```
///
/// The worker leads a terminal session of its own, so Ctrl-C reaches only the application. It dies with this process
/// and with the keeper, however they end, and the processes that it starts are killed when it ends. Destruction kills
/// it and its descendants. In a forked child every call throws `Errc::forked`, and destruction does nothing.
/// Move-only; a moved-from object owns nothing. Not synchronised. docs/processes.md has the table of deaths.
class Process {
 public:
  /// Starts a worker and returns once it is loaded but before it has joined, so that many start in parallel. Throws
  /// `Errc::not_found`, with the existing names, if there is no such entry; `Errc::invalid_argument` unless
  /// drover::init was called; and the errors of ChildProcess::spawn and Session::invite.
  [[nodiscard]] static Process start(Session session, const ProcessOptions& options);

  /// Takes over the worker of `other`.
  Process(Process&& other) noexcept;
  /// Ends the worker that was owned, then takes over the other.
  Process& operator=(Process&& other) noexcept;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  /// The name given in ProcessOptions.
  [[nodiscard]] const std::string& name() const;
  /// Its process id, which is not reused before `wait` has returned its exit status.
  [[nodiscard]] pid_t pid() const;
  /// Readable once it has ended; for poll and epoll.
  [[nodiscard]] int pidfd() const;
  /// Lets it be waited for: wait({queue, worker}, deadline).
  operator WaitSource() const { return WaitSource::readable(pidfd()); }  // NOLINT(google-explicit-constructor)

  /// Waits until the worker has joined the session and is about to run its entry. If it ends before, throws
  /// `Errc::peer_lost` with its exit status, the reason, and the last lines of its standard error.
  WaitResult wait_ready(Deadline deadline);
  /// Waits until it has ended, its output is forwarded, and the processes it left behind are killed. Returns its exit
  /// status; nullopt if it has not ended by the deadline. The clean-up after its end ignores the deadline: it takes
  /// milliseconds, or a few seconds if leftovers do not die. Throws `Errc::not_found` if other code reaped the
  /// worker, as in a program that ignores SIGCHLD or waits for all children.
  [[nodiscard]] std::optional<ExitStatus> wait(Deadline deadline);
  /// Sends a signal to the worker but not to its descendants; does nothing if it has ended.
  void kill(int signal);
  /// Ends it: sends SIGTERM, and after `grace` kills it and its descendants. Returns its exit status. Throws
  /// `Errc::timed_out` if it does not die because it is stuck in the kernel.
  ExitStatus end(Duration grace = std::chrono::seconds(5));

  /// The failure that the worker reported: the exception that left its entry, or why it had to end. Empty if it
  /// reported none, as when it was killed.
  [[nodiscard]] const std::string& failure();
  /// The last lines of its standard error, at most 4 KiB, if its output is forwarded or goes to a file.
  [[nodiscard]] std::string error_tail() const;
  /// A line such as "worker-2 (process 71) exited with status 70: std::runtime_error: no such model".
  [[nodiscard]] std::string describe();

 private:
  class State;
  explicit Process(std::unique_ptr<State> state) noexcept;
  [[nodiscard]] State& state() const;
  ExitStatus end_by(Deadline deadline);
  ExitStatus await_killed(Deadline deadline);
  friend void end_all(std::vector<Process>& workers, Duration grace);

  std::unique_ptr<State> state_;
};

/// Starts a worker for each of `options` without waiting for any to join. If one cannot be started, ends the others
/// and throws.
[[nodiscard]] std::vector<Process> start_all(const Session& session, const std::vector<ProcessOptions>& options);

/// Ends all workers in parallel, with one `grace` for all: sends SIGTERM to each, then acts like `Process::end`. Ends
/// every worker even if one fails, then throws the first error.
void end_all(std::vector<Process>& workers, Duration grace = std::chrono::seconds(5));

}  // namespace drover
