// session/client/start_keeper.hpp: starts the keeper process of a session.
#pragma once

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "drover/ipc/channel.hpp"
#include "drover/process/child_process.hpp"
#include "session/keeper/keeper.hpp"

namespace drover::session {

/// The keeper of an unnamed session.
struct StartedKeeper {
  ChildProcess process;  ///< child of this process
  Fd connection;         ///< for joining
  Channel starter;       ///< close it after joining; closed earlier, it tells the keeper to give up
};

/// Starts the keeper of an unnamed session and waits until it is ready. Throws `Errc::invalid_argument` unless
/// drover::init was called in this process or DROVER_KEEPER names another program, and the error of the keeper if it
/// fails.
[[nodiscard]] StartedKeeper start_keeper(Deadline deadline);

/// The outcome of starting the keeper of a named session.
enum class [[nodiscard]] NamedStart {
  started,  ///< it listens
  taken,    ///< another keeper has the name or is taking it
};

/// Starts the keeper of a named session as a daemon. Throws like `start_keeper`.
NamedStart start_named_keeper(const KeeperSettings& settings, Deadline deadline);

}  // namespace drover::session
