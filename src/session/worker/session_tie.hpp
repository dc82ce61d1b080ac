// session/worker/session_tie.hpp: ends this process when its session is lost.
#pragma once

#include <string_view>

#include "drover/session/session.hpp"
#include "process/spawn/death_watch.hpp"

namespace drover::session {

/// Ends this process when the keeper of its session has ended. `what` is what ends, for the log: "a worker". Throws
/// `Errc::peer_lost` if the session is over already.
void depend_on_keeper(process::DeathWatch& watch, const Session& session, std::string_view what);

/// Ends this process, a participant that is no worker of drover::Process, and its descendants when the keeper of its
/// session or the process that started it has ended, whichever is first: they may be killed together, and a process
/// in between may be gone. From then on a thread watches both. Of a named session, which outlives its starter, it
/// watches the keeper alone. Throws `Errc::peer_lost` if the session is over already.
void tie_to_session(const Session& session);

}  // namespace drover::session
