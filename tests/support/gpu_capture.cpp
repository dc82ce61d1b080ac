#include "support/gpu_capture.hpp"

#include <dlfcn.h>

#include <gtest/gtest.h>

namespace drover::test {
namespace {

constexpr int kCaptureGlobal = 0;

template <class... Parameters>
int call_driver(const char* name, Parameters... parameters) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  const auto function = reinterpret_cast<int (*)(Parameters...)>(::dlsym(library, name));
  return function == nullptr ? -1 : function(parameters...);
}

}  // namespace

GpuCapture::GpuCapture(const Stream& stream)
    : stream_(
          reinterpret_cast<void*>(stream.native())) {  // NOLINT(performance-no-int-to-ptr): required by the driver
  EXPECT_EQ(call_driver("cuStreamBeginCapture_v2", stream_, kCaptureGlobal), 0);
}

bool GpuCapture::end() const {
  void* graph = nullptr;
  const int result = call_driver("cuStreamEndCapture", stream_, &graph);
  if (graph != nullptr) static_cast<void>(call_driver("cuGraphDestroy", graph));
  return result == 0;
}

}  // namespace drover::test
