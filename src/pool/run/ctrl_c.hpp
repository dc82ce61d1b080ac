// pool/run/ctrl_c.hpp: the handler of Ctrl-C in a program with pools.
//
// The first Ctrl-C shuts pools down gracefully: what has not begun is cancelled, running tasks finish. The second one
// ends the program as if there were no pools; the keeper then kills the workers.
#pragma once

namespace drover::pool::ctrl_c {

/// Wakes a pool by its eventfd at each Ctrl-C. The first pool installs the handler, unless the program has its own.
void add(int wake);
/// Stops waking it. The last pool removes the handler.
void remove(int wake) noexcept;
/// Times that Ctrl-C was pressed since the first pool.
[[nodiscard]] int count() noexcept;

}  // namespace drover::pool::ctrl_c
