// process/init_state.hpp: whether drover::init was called in this process.
#pragma once

#include <atomic>

namespace drover {

namespace detail {
inline std::atomic<bool> is_initialised{false};
}  // namespace detail

/// What drover::init does once it has seen that the process is to play no role of drover's.
inline void set_initialised() noexcept { detail::is_initialised = true; }

/// Whether it was called. Without it this program, started again in a role, would run its own main instead.
[[nodiscard]] inline bool was_initialised() noexcept { return detail::is_initialised; }

}  // namespace drover
