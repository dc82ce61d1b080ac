// device/fork_guard.hpp: detects that this process was forked from one with open devices.
#pragma once

#include <source_location>

namespace drover::device::fork_guard {

/// From now on `check` fails in forked children. Backends call it when they initialise a device; repeating it is
/// free.
void arm();

/// Throws `Errc::forked` in a child forked after `arm`. One relaxed load.
void check(std::source_location where = std::source_location::current());

/// Whether this is such a child; for destructors, which must neither wait nor lock there.
[[nodiscard]] bool is_forked_child() noexcept;

/// Throws the error of `check`, for callers that detect the fork in another way.
[[noreturn]] void fail(std::source_location where = std::source_location::current());

}  // namespace drover::device::fork_guard
