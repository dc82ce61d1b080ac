// drover/process/process_tree.hpp: the end of a process together with everything it started.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>

#include "drover/base/clock.hpp"

namespace drover {

/// Kills a process, everything below it, and everything in the session it made, if it made one. First all of them are
/// stopped, so that none can start another unseen; then all are killed, `root` last. Also finds what was started anew
/// in the background or in a session of its own, provided `root` adopts the orphans below it, as workers do
/// (PR_SET_CHILD_SUBREAPER), or the process between them still lives. Signals reach exactly the processes meant, even
/// if ids are given out again.
///
/// `pidfd` names `root` too. It may have ended; then what is left of its session is killed. It is not reaped here,
/// and if somebody has reaped it, nobody but who has its mark is looked for; orphans that fall to this process
/// because of its end are reaped. Returns `timed_out` if some do not die before the deadline, as a process stuck in
/// the kernel does not, or if nobody can be looked for because too many files are open; `root` is killed even so.
WaitResult kill_tree(pid_t root, int pidfd, Deadline deadline);

/// A process to be killed with everything below it.
struct TreeRoot {
  pid_t pid = 0;     ///< its id
  int pidfd = -1;    ///< names it too
  std::string mark;  ///< "NAME=value" in the environment of it alone: who inherited it is killed too; may be empty
};

/// The same for several at once, which is quicker than one after the other.
WaitResult kill_trees(std::span<const TreeRoot> roots, Deadline deadline);

/// The same for everything below this process, which itself goes on. Where it adopts orphans, nobody is stopped
/// first, so that nobody is left stopped if it is killed meanwhile. Works even if another thread closes descriptors
/// that are not its own. The keeper of a session without a name that this process started is below it too: the
/// session ends as if its keeper had been killed.
WaitResult kill_descendants(Deadline deadline);

}  // namespace drover
