// session/keeper/run_keeper.hpp: the process that keeps a session.
#pragma once

namespace drover {

/// The whole life of a keeper, from main's arguments to the exit status. Called by drover::init where the arguments
/// ask for the role "keeper". Descriptor 3 is a channel to the process that starts the session.
[[nodiscard]] int run_keeper(int argc, char** argv);

}  // namespace drover
