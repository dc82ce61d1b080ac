// drover/session/init.hpp: the first call of every program that uses drover.
#pragma once

#include "drover/session/worker.hpp"

namespace drover {

/// Call this first in main. drover starts this program again for its workers and for the keeper of a session; in
/// those processes the call does the work and never returns. In the application it returns at once. Code before it,
/// and the initialisers of global variables, run in all of these processes.
///
/// Throws `Errc::invalid_argument` if two entries have the same name.
void init(int argc, char** argv);

}  // namespace drover
