// A stand-in for the CUDA runtime, as a library that allocates sees it: its memory is host memory, apart from slabs.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace {

constexpr int kMemoryAllocation = 2;
std::atomic<int> allocations{0};
std::atomic<int> synchronizations{0};
thread_local int current = 0;

}  // namespace

extern "C" {

// NOLINTBEGIN(readability-identifier-naming): the names of the CUDA runtime
int cudaMalloc(void** ptr, std::size_t bytes) {
  *ptr = std::malloc(bytes);
  ++allocations;
  return *ptr == nullptr ? kMemoryAllocation : 0;
}

int cudaFree(void* ptr) {
  std::free(ptr);
  if (ptr != nullptr) --allocations;
  return 0;
}

int cudaGetDevice(int* device) {
  *device = current;
  return 0;
}

int cudaSetDevice(int device) {
  current = device;
  return 0;
}

int cudaDeviceSynchronize() {
  ++synchronizations;
  return 0;
}
// NOLINTEND(readability-identifier-naming)

/// Allocations of cudaMalloc that were not freed.
int fake_cudart_allocations() { return allocations; }
/// Calls of cudaDeviceSynchronize.
int fake_cudart_synchronizations() { return synchronizations; }
}
