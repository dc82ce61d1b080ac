// process/spawn/child_watch.hpp: the one thread that forwards the output of all children and cleans up after them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "drover/process/child_process.hpp"

namespace drover::process {

/// What to watch of a child.
struct WatchedChild {
  std::string name;  ///< prefix of its lines
  Fd output;         ///< read end of its standard output; empty: not forwarded
  Fd error;          ///< read end of its standard error; empty: not forwarded
  std::string mark;  ///< TreeRoot::mark
};

/// A thread that starts children, forwards their output line by line to the standard output and error of this
/// process, and kills the processes they leave behind. One per process, for any number of children; it lives as long
/// as a reference to it. Thread-safe.
class ChildWatch {
 public:
  /// The instance of this process, created on first use. Throws `Errc::forked` in a forked child that inherited one.
  [[nodiscard]] static std::shared_ptr<ChildWatch> instance();
  ChildWatch(const ChildWatch&) = delete;
  ChildWatch& operator=(const ChildWatch&) = delete;
  /// Gives a slow reader a moment to read the last lines, then joins the thread.
  ~ChildWatch();

  /// Starts a child from the watching thread. Since that thread outlives all children,
  /// SpawnOptions::parent_death_signal then reports the end of this process. CPUs and niceness default to those of
  /// the caller, as Placement says.
  [[nodiscard]] ChildProcess spawn(const SpawnOptions& options);
  /// Watches a child that leads its own session. Requires: it is not reaped before `finish`.
  void add(ChildProcess& child, WatchedChild what);
  /// The last lines that the child wrote to standard error, at most about 4 KiB.
  [[nodiscard]] std::string tail(pid_t pid) const;
  /// Waits until the processes that a child left behind are killed and its output is forwarded, but not long for a
  /// reader that does not read. Then stops watching it and returns its tail. Requires: it has ended.
  std::string finish(pid_t pid);
  /// Stops watching a child that does not end; its further output is lost.
  void forget(pid_t pid);

 private:
  class Loop;
  ChildWatch();

  std::shared_ptr<Loop> loop_;  // shared with the thread
  std::thread thread_;
  pid_t process_;
};

}  // namespace drover::process
