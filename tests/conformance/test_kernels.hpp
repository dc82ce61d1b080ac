// tests/conformance/test_kernels.hpp: device code for tests, in the format of each backend.
#pragma once

#include <cstddef>
#include <vector>

#include "drover/device/info.hpp"

namespace drover::test {

/// An image with `scale(float* data, float factor, uint32 count)`; on `cuda` also `fault()`, which writes to
/// unmapped memory.
[[nodiscard]] std::vector<std::byte> test_kernel_image(BackendKind kind);

/// The content of a file.
[[nodiscard]] std::vector<std::byte> read_image(const char* path);

}  // namespace drover::test
