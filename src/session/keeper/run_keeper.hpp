// session/keeper/run_keeper.hpp: the main function of a keeper process.
#pragma once

namespace drover::session {

/// Runs a keeper from main's arguments to the exit status. Called by drover::init if the arguments have the role
/// "keeper". Descriptor 3 is a channel to the process that started it.
[[nodiscard]] int run_keeper(int argc, char** argv);

}  // namespace drover::session
