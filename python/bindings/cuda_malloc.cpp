// cudaMalloc and cudaFree as torch's allocator calls them, in slabs. See docs/decisions/024.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/device/stream.hpp"
#include "import_table.hpp"
#include "slabs.hpp"

namespace drover::python {
namespace {

constexpr int kSuccess = 0;
constexpr int kMemoryAllocation = 2;  // cudaErrorMemoryAllocation

// The functions of the CUDA runtime that the library uses.
struct Runtime {
  int (*malloc)(void**, std::size_t) = nullptr;
  int (*free)(void*) = nullptr;
  int (*get_device)(int*) = nullptr;
  int (*set_device)(int) = nullptr;
  int (*synchronize)() = nullptr;

  [[nodiscard]] bool is_complete() const noexcept {
    return malloc != nullptr && free != nullptr && get_device != nullptr && set_device != nullptr &&
           synchronize != nullptr;
  }
};

Runtime the_runtime;  // complete before the first routed call

template <class Function>
void look_up(const ImportTable& table, const char* name, Function*& into) {
  into = reinterpret_cast<Function*>(table.resolve(name));
}

// Logs only the first time: a library that allocates often would fill the log.
void warn_once(const char* problem) noexcept {
  static std::atomic<bool> is_warned{false};
  if (is_warned.exchange(true)) return;
  log(LogLevel::warn,
      fmt::format("GPU memory is allocated outside of slabs from now on, and arrays there are copied when they are "
                  "sent: {}",
                  problem));
}

// Waits for the current device. While a graph is captured, by a call that leaves captures alone as far as cudaFree
// does.
int wait_for_device() noexcept {
  void* any = nullptr;
  if (CaptureNotice::exists() && the_runtime.malloc(&any, 1) == kSuccess) return the_runtime.free(any);
  return the_runtime.synchronize();
}

// Work on all streams of the device has ended afterwards, as after cudaFree.
int synchronize(int device) noexcept {
  int current = 0;
  if (const int error = the_runtime.get_device(&current); error != kSuccess) return error;
  if (const int error = the_runtime.set_device(device); error != kSuccess) return error;
  const int result = wait_for_device();
  const int restored = the_runtime.set_device(current);
  return result != kSuccess ? result : restored;
}

// Whatever happens, the library gets memory if there is any: without slabs its arrays are sent by a copy.
int routed_malloc(void** ptr, std::size_t bytes) noexcept {
  SlabAllocator* const slabs = find_allocator(true);
  int device = 0;
  if (ptr == nullptr || bytes == 0 || slabs == nullptr || the_runtime.get_device(&device) != kSuccess) {
    return the_runtime.malloc(ptr, bytes);
  }
  try {
    const DevicePtr made = slabs->allocate(device, bytes, 0);
    *ptr = reinterpret_cast<void*>(made.address);  // NOLINT(performance-no-int-to-ptr): CUDA's type
    return kSuccess;
  } catch (const Error& error) {
    if (is_shortage(error)) return kMemoryAllocation;
    warn_once(error.what());
  } catch (const std::exception& error) {
    warn_once(error.what());
  }
  return the_runtime.malloc(ptr, bytes);
}

int routed_free(void* ptr) noexcept {
  SlabAllocator* const slabs = find_allocator(true);
  const DevicePtr address{reinterpret_cast<std::uint64_t>(ptr)};
  const auto device = ptr == nullptr || slabs == nullptr ? std::nullopt : slabs->device_of(address);
  if (!device) return the_runtime.free(ptr);
  if (const int error = synchronize(*device); error != kSuccess) return error;
  slabs->free_unused(address);
  return kSuccess;
}

}  // namespace

void route_cuda_malloc(const std::string& library) {
  static std::mutex mutex;
  static bool is_routed = false;
  const std::scoped_lock lock(mutex);
  if (is_routed) return;
  const auto table = ImportTable::find(library);
  Runtime found;
  if (table && table->has("cudaMalloc") && table->has("cudaFree")) {
    look_up(*table, "cudaMalloc", found.malloc);
    look_up(*table, "cudaFree", found.free);
    look_up(*table, "cudaGetDevice", found.get_device);
    look_up(*table, "cudaSetDevice", found.set_device);
    look_up(*table, "cudaDeviceSynchronize", found.synchronize);
  }
  if (!table || !found.is_complete()) {
    throw Error(Errc::unsupported,
                fmt::format("{} does not call the CUDA runtime through its import table, so its memory cannot be "
                            "allocated in slabs",
                            table ? table->path() : library),
                "use a build with a shared CUDA runtime, as those from PyPI are");
  }
  the_runtime = found;
  table->replace("cudaFree", reinterpret_cast<void*>(&routed_free));  // first: it knows both kinds of memory
  table->replace("cudaMalloc", reinterpret_cast<void*>(&routed_malloc));
  is_routed = true;
}

}  // namespace drover::python
