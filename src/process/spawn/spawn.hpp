// process/spawn/spawn.hpp: starting a program with everything in force before it loads.
#pragma once

#include <sys/types.h>

#include <array>

#include "drover/base/fd.hpp"
#include "drover/process/spawn_options.hpp"

namespace drover {

/// A process that was started, not owned by anybody yet.
struct Spawned {
  pid_t pid = 0;            ///< its id
  Fd pidfd;                 ///< made together with it
  std::array<Fd, 3> pipes;  ///< our ends of the standard streams that are pipes
  Fd remote;                ///< where its parent tells how it ended, if that is another process: remote_status.hpp
};

/// Starts a program; throws, with the step that failed and its subject, if that cannot be done. See
/// docs/decisions/008-clone-instead-of-posix-spawn.md.
[[nodiscard]] Spawned spawn(const SpawnOptions& options);

}  // namespace drover
