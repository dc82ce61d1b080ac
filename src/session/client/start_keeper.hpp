// session/client/start_keeper.hpp: starting the process that keeps a session.
#pragma once

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "drover/ipc/channel.hpp"
#include "drover/process/child_process.hpp"
#include "session/keeper/keeper.hpp"

namespace drover {

/// The keeper of a session without a name.
struct StartedKeeper {
  ChildProcess process;  ///< our child
  Fd connection;         ///< to it, for us to join
  Channel starter;       ///< to be closed once we have joined; closed earlier it means that we gave up
};

/// Starts the keeper of a session without a name and waits until it is ready. Throws `Errc::invalid_argument` unless
/// drover::init was called in this process or DROVER_KEEPER names another program, and what stopped the keeper.
[[nodiscard]] StartedKeeper start_keeper(Deadline deadline);

/// How starting the keeper of a named session ended.
enum class [[nodiscard]] NamedStart {
  started,  ///< it listens
  taken,    ///< another keeper has the name, or is about to
};

/// Starts the keeper of a named session, as nobody's child. Throws as `start_keeper`.
NamedStart start_named_keeper(const KeeperSettings& settings, Deadline deadline);

}  // namespace drover
