// drover/process/process_tree.hpp: kills a process together with its descendants.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>

#include "drover/base/clock.hpp"

namespace drover {

/// Kills a process, its descendants, and the members of the session that it leads, if any. Stops all of them first,
/// so that none can start another unnoticed, then kills them, `root` last. Also finds daemons and processes in
/// sessions of their own, provided that `root` adopts orphans, as workers do (PR_SET_CHILD_SUBREAPER), or that the
/// processes in between are alive. Signals never reach a process that reuses an id.
///
/// `pidfd` refers to `root` too. If `root` has ended, kills what is left of its session; if it has been reaped, kills
/// only processes with its mark. Does not reap `root`, but reaps orphans that this process adopts at its end. Returns
/// `timed_out` if some do not die before the deadline, as when stuck in the kernel, or if descendants cannot be found
/// because too many files are open; `root` is killed even then.
WaitResult kill_tree(pid_t root, int pidfd, Deadline deadline);

/// A process to kill with its descendants.
struct TreeRoot {
  pid_t pid = 0;   ///< process id
  int pidfd = -1;  ///< its pidfd
  std::string
      mark;  ///< unique "NAME=value" in its environment: processes that inherited it are killed too; may be empty
};

/// Kills several trees at once, which is faster than one by one.
WaitResult kill_trees(std::span<const TreeRoot> roots, Deadline deadline);

/// Kills all descendants of this process. If it adopts orphans, kills without stopping first, so that none is left
/// stopped if this process is killed meanwhile. Works even if another thread closes descriptors that are not its own.
/// The keeper of an unnamed session that this process started is a descendant too, so the session ends as if its
/// keeper had been killed.
WaitResult kill_descendants(Deadline deadline);

}  // namespace drover
