// pool/run/ctrl_c.hpp: what Ctrl-C does to a program with pools.
//
// The first one ends their work in peace: what has not begun is cancelled, what runs is waited for. The second one
// ends the program as if there were no pools; the keeper then kills the workers.
#pragma once

#include <memory>

namespace drover {

class PoolCore;

namespace ctrl_c {

/// Tells this pool from now on. With the first one a handler is installed, if the program has none of its own.
void add(const std::shared_ptr<PoolCore>& pool);
/// No more. With the last one the handler goes.
void remove(const PoolCore& pool) noexcept;
/// How often it was pressed since the first pool.
[[nodiscard]] int count() noexcept;

}  // namespace ctrl_c
}  // namespace drover
