// Device memory for torch and CuPy: the allocation functions that they call.
#include "slabs.hpp"

#include <sys/types.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "drover/base/error.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

// One of each kind per process, never freed: libraries free arrays until the process exits. The second divides its
// memory itself.
std::array<std::atomic<SlabAllocator*>, 2> the_allocators{};

std::atomic<SlabAllocator*>& slot(bool is_divided) { return the_allocators.at(is_divided ? 1 : 0); }

void use_slabs(const PySession& session, const std::string& backend, std::optional<std::uint64_t> cached_bytes,
               bool is_divided) {
  if (slot(is_divided) != nullptr) return;
  auto made = std::make_unique<SlabAllocator>(
      session.memory,
      SlabAllocatorOptions{
          .backend = Place::parse(backend + ":0").backend, .cached_bytes = cached_bytes, .is_divided = is_divided});
  SlabAllocator* expected = nullptr;
  if (!slot(is_divided).compare_exchange_strong(expected, made.get())) return;
  static_cast<void>(made.release());  // NOLINT(bugprone-unused-return-value): the slot owns it now
}

nb::dict usage(std::optional<int> device) {
  if (slot(false) == nullptr) static_cast<void>(allocator(true));  // throws if there is none at all
  SlabAllocatorUsage now;
  for (const auto& each : the_allocators) {
    if (each == nullptr) continue;
    const SlabAllocatorUsage its = each.load()->usage(device);
    now.blocks += its.blocks;
    now.bytes += its.bytes;
    now.cached_blocks += its.cached_blocks;
    now.cached_bytes += its.cached_bytes;
    now.hits += its.hits;
    now.misses += its.misses;
  }
  nb::dict all;
  all["blocks"] = now.blocks;
  all["bytes"] = now.bytes;
  all["cached_blocks"] = now.cached_blocks;
  all["cached_bytes"] = now.cached_bytes;
  all["hits"] = now.hits;
  all["misses"] = now.misses;
  return all;
}

void empty_cache() {
  if (slot(false) == nullptr) static_cast<void>(allocator(true));  // throws if there is none at all
  for (const auto& each : the_allocators) {
    if (each != nullptr) each.load()->empty_cache();
  }
}

// 0 if there is no memory, for callers that raise their own error then.
std::uint64_t allocate_divided(std::uint64_t bytes, int device) {
  try {
    return allocator(true).allocate(device, bytes, 0).address;
  } catch (const Error& error) {
    if (!is_shortage(error)) throw;
    return 0;
  }
}

}  // namespace

SlabAllocator* find_allocator(bool is_divided) noexcept { return slot(is_divided).load(std::memory_order_acquire); }

SlabAllocator& allocator(bool is_divided) {
  SlabAllocator* const made = find_allocator(is_divided);
  if (made != nullptr) return *made;
  throw Error(Errc::invalid_argument, "this process does not allocate from slabs yet",
              "call drover.torch.use_slabs() or drover.cupy.use_slabs() first");
}

bool is_shortage(const Error& error) noexcept {
  return error.code() == Errc::device_memory || error.code() == Errc::limit_reached;
}

void bind_slabs(nb::module_& module) {
  module.def("use_slabs", &use_slabs, nb::arg("session"), nb::arg("backend"), nb::arg("cached_bytes").none(),
             nb::arg("is_divided") = false,
             "Make the exported functions, or those for a library that divides its memory itself, allocate from the "
             "slabs of a session; once per process.");
  module.def("slabs_usage", &usage, nb::arg("device").none() = nb::none(), "Counts of blocks in use and cached.");
  module.def("empty_slabs_cache", &empty_cache, nb::call_guard<Released>(), "Free the cached blocks.");
  module.def(
      "slabs_allocate",
      [](std::uint64_t bytes, int device, std::uintptr_t stream) {
        return allocator(false).allocate(device, bytes, stream).address;
      },
      nb::arg("bytes"), nb::arg("device"), nb::arg("stream"), nb::call_guard<Released>(),
      "Allocate a block; return its address.");
  module.def(
      "slabs_free", [](std::uint64_t address) { allocator(false).free({address}); }, nb::arg("address"),
      nb::call_guard<Released>(), "Free a block.");
  module.def("slabs_allocate_divided", &allocate_divided, nb::arg("bytes"), nb::arg("device"),
             nb::call_guard<Released>(),
             "Allocate memory that the caller divides itself; return its address, or 0 if there is none left.");
  module.def(
      "slabs_free_divided", [](std::uint64_t address) { allocator(true).free_unused({address}); }, nb::arg("address"),
      nb::call_guard<Released>(), "Free such memory once its device does not use it any more.");
  module.def(
      "trim_memory", [](const PySession& session) { Memory(session.memory).trim(); }, nb::arg("session"),
      nb::call_guard<Released>(), "Release what no process uses any more: arrays of other libraries, and slabs.");
  module.def("route_cuda_malloc", &route_cuda_malloc, nb::arg("library"),
             "Make a library's calls of cudaMalloc allocate such memory, and its calls of cudaFree free it.");
}

}  // namespace drover::python

// For torch's CUDAPluggableAllocator, which turns exceptions into Python exceptions.
#define DROVER_EXPORTED extern "C" __attribute__((visibility("default")))

DROVER_EXPORTED void* drover_slabs_alloc(ssize_t bytes, int device, void* stream) {
  const auto ptr = drover::python::allocator(false).allocate(device, static_cast<std::uint64_t>(bytes),
                                                             reinterpret_cast<std::uintptr_t>(stream));
  return reinterpret_cast<void*>(ptr.address);  // NOLINT(performance-no-int-to-ptr): torch's type
}

DROVER_EXPORTED void drover_slabs_free(void* ptr, ssize_t /*bytes*/, int /*device*/, void* /*stream*/) {
  drover::python::allocator(false).free({reinterpret_cast<std::uint64_t>(ptr)});
}

DROVER_EXPORTED void drover_slabs_record_stream(void* ptr, void* stream) {
  drover::python::allocator(false).also_used_in({reinterpret_cast<std::uint64_t>(ptr)},
                                                reinterpret_cast<std::uintptr_t>(stream));
}
