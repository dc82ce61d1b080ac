// ipc/wake/sleep_on_many.hpp: sleeping on several bells at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "ipc/wake/bell.hpp"

namespace drover {

/// Most bells on which one sleep can listen; with more, the sleep is short instead.
inline constexpr std::size_t kMostBells = 128;

/// Sleeps until one of the bells rings, at most `longest`; `announced` has their values, in the same order. May
/// return early. Where the kernel cannot wait for several (before 5.16), it sleeps a millisecond at a time.
void sleep_on_many(std::span<Bell* const> bells, std::span<const std::uint32_t> announced,
                   std::chrono::nanoseconds longest) noexcept;

}  // namespace drover
