// process/spawn/spawn.hpp: starts a program with its options in force before it loads.
#pragma once

#include <sys/types.h>

#include <array>

#include "drover/base/fd.hpp"
#include "drover/process/spawn_options.hpp"

namespace drover::process {

/// A started process that has no owner yet.
struct Spawned {
  pid_t pid = 0;            ///< process id
  Fd pidfd;                 ///< created with it
  std::array<Fd, 3> pipes;  ///< the ends of its piped standard streams that belong to this process
  Fd remote;                ///< where its parent, if another process, reports its end: remote_status.hpp
};

/// Starts a program; on failure throws with the step that failed and its subject. See
/// docs/decisions/008-clone-instead-of-posix-spawn.md.
[[nodiscard]] Spawned spawn(const SpawnOptions& options);

/// The same, but the process is nobody's child: this process gets no SIGCHLD, has nothing to wait for and must not
/// reap it; init does. Requires: no parent-death signal.
[[nodiscard]] Spawned spawn_detached(const SpawnOptions& options);

}  // namespace drover::process
