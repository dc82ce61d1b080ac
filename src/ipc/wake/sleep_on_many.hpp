// ipc/wake/sleep_on_many.hpp: sleeping on several bells at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "ipc/wake/bell.hpp"

namespace drover::ipc {

/// Most bells of one sleep; with more, it is a short sleep on the first ones.
inline constexpr std::size_t kMostBells = 128;

/// Sleeps until one of the bells rings, at most `longest`; `announced` has their values in the same order. May return
/// early. On kernels before 5.16, which cannot wait for several, it sleeps for a millisecond at most.
void sleep_on_many(std::span<Bell* const> bells, std::span<const std::uint32_t> announced,
                   std::chrono::nanoseconds longest) noexcept;

}  // namespace drover::ipc
