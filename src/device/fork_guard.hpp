// device/fork_guard.hpp: notices that this process is a fork of one that had devices open.
#pragma once

#include <source_location>

namespace drover::fork_guard {

/// From now on a fork of this process is remembered in the child. Called when the first device is initialised,
/// by whichever backend; costs nothing when repeated.
void arm();

/// Throws `Errc::forked` in a child forked after `arm`. One relaxed load.
void check(std::source_location where = std::source_location::current());

/// Whether this is such a child; for destructors, which then must not wait or lock.
[[nodiscard]] bool is_forked_child() noexcept;

/// The error that `check` throws, for callers that learn of the fork in another way.
[[noreturn]] void fail(std::source_location where = std::source_location::current());

}  // namespace drover::fork_guard
