// What the tests of pools share.
#pragma once

#include <chrono>

namespace drover::test {

/// Far more than anything here takes; a test that needs it fails.
inline constexpr std::chrono::seconds kPatience{60};

}  // namespace drover::test
