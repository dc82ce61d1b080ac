// process/inspect/process_tree.hpp: kills several processes together with their descendants.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>

#include "drover/base/clock.hpp"

namespace drover::process {

/// A process to kill with its descendants.
struct TreeRoot {
  pid_t pid = 0;   ///< process id
  int pidfd = -1;  ///< its pidfd
  std::string
      mark;  ///< unique "NAME=value" in its environment: processes that inherited it are killed too; may be empty
};

/// Kills several trees at once, which is faster than one by one.
WaitResult kill_trees(std::span<const TreeRoot> roots, Deadline deadline);

}  // namespace drover::process
