// Helpers for tests of pools.
#pragma once

#include <chrono>

namespace drover::test {

/// Longer than any operation of these tests takes.
inline constexpr std::chrono::seconds kPatience{60};

}  // namespace drover::test
