// benchmarks/support/bare_driver.hpp: NVIDIA's driver called as a program without drover would.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace drover::bench {

/// An entry point of libcuda.so.1. Throws if there is none.
template <class Function>
[[nodiscard]] Function driver_symbol(const char* name) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  void* const address = library == nullptr ? nullptr : ::dlsym(library, name);
  if (address == nullptr) throw std::runtime_error(std::string("libcuda.so.1 has no ") + name);
  return reinterpret_cast<Function>(address);
}

/// Throws unless `result` is success.
inline void check_driver(int result, const char* call) {
  if (result != 0) throw std::runtime_error(std::string(call) + " failed with " + std::to_string(result));
}

/// Makes the primary context of the first GPU, which drover also uses, current for this thread.
inline void use_first_gpu() {
  void* context = nullptr;
  check_driver(driver_symbol<int (*)(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0),
               "cuDevicePrimaryCtxRetain");
  check_driver(driver_symbol<int (*)(void*)>("cuCtxSetCurrent")(context), "cuCtxSetCurrent");
}

/// Host memory that the driver allocated for fast copies.
class DriverHostMemory {
 public:
  explicit DriverHostMemory(std::size_t bytes) {
    const auto allocate = driver_symbol<int (*)(void**, std::size_t, unsigned)>("cuMemHostAlloc");
    check_driver(allocate(&memory_, bytes, 0), "cuMemHostAlloc");
  }
  ~DriverHostMemory() { static_cast<void>(driver_symbol<int (*)(void*)>("cuMemFreeHost")(memory_)); }
  DriverHostMemory(const DriverHostMemory&) = delete;
  DriverHostMemory& operator=(const DriverHostMemory&) = delete;
  [[nodiscard]] void* data() const noexcept { return memory_; }

 private:
  void* memory_ = nullptr;
};

/// The driver's own blocking copies.
inline void driver_upload(unsigned long long to, const void* from, std::size_t bytes) {
  static const auto call = driver_symbol<int (*)(unsigned long long, const void*, std::size_t)>("cuMemcpyHtoD_v2");
  check_driver(call(to, from, bytes), "cuMemcpyHtoD");
}
inline void driver_download(void* to, unsigned long long from, std::size_t bytes) {
  static const auto call = driver_symbol<int (*)(void*, unsigned long long, std::size_t)>("cuMemcpyDtoH_v2");
  check_driver(call(to, from, bytes), "cuMemcpyDtoH");
}

}  // namespace drover::bench
