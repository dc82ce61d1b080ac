// process/spawn/child_watch.hpp: the one thread that passes on what all children write and cleans up after them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "drover/process/child_process.hpp"

namespace drover {

/// What of a child is watched.
struct WatchedChild {
  std::string name;  ///< put before its lines
  Fd output;         ///< our end of its standard output; empty: not forwarded
  Fd error;          ///< of its standard error
  std::string mark;  ///< TreeRoot::mark
};

/// A thread that starts children, passes on what they write, line by line, to our standard output and error, and
/// kills what they leave behind when they end. One per process, whatever the number of children; it exists while
/// somebody holds it. Safe for all threads.
class ChildWatch {
 public:
  /// That of this process, shared by all who need it. Throws `Errc::forked` in a forked child that inherited one.
  [[nodiscard]] static std::shared_ptr<ChildWatch> instance();
  ChildWatch(const ChildWatch&) = delete;
  ChildWatch& operator=(const ChildWatch&) = delete;
  /// Gives a slow reader a moment to take the last lines, then ends the thread.
  ~ChildWatch();

  /// Starts a child from the watching thread. SpawnOptions::parent_death_signal then tells of the end of this
  /// process, since the thread lives as long as there are children. CPUs and niceness are those of the caller, as
  /// Placement says.
  [[nodiscard]] ChildProcess spawn(const SpawnOptions& options);
  /// Watches a child that leads its own session. It must not be reaped before `finish` was called.
  void add(const ChildProcess& child, WatchedChild what);
  /// The end of what the child wrote to standard error so far: whole lines, about 4 KiB at most.
  [[nodiscard]] std::string tail(pid_t pid) const;
  /// Waits until what a child left behind is killed and what it wrote is passed on; a reader of ours who does not
  /// read is not waited for long. Then forgets it and returns its tail. Requires: it has ended.
  std::string finish(pid_t pid);
  /// Forgets a child that does not end; what it writes from now on is lost.
  void forget(pid_t pid);

 private:
  class Loop;
  ChildWatch();

  std::shared_ptr<Loop> loop_;  // shared with the thread
  std::thread thread_;
  pid_t process_;
};

}  // namespace drover
