// Kernels of the conformance suite for the `host` backend; tests/conformance/test_kernels.cpp holds the same as PTX.
#include <cstdint>

#include "drover/device/host_kernel.h"

namespace {

template <class Value>
Value argument(const HostLaunch* launch, unsigned index) {
  return *static_cast<Value*>(launch->arguments[index]);
}

}  // namespace

// data[i] *= factor for i < count
extern "C" void scale(const HostLaunch* launch) {
  auto* const data = argument<float*>(launch, 0);
  const auto factor = argument<float>(launch, 1);
  const auto count = argument<std::uint32_t>(launch, 2);
  const auto threads = std::uint64_t{launch->grid[0]} * launch->block[0];
  for (std::uint64_t i = 0; i < threads && i < count; ++i) data[i] *= factor;
}
