// Device memory for torch and CuPy: the allocation functions that they call by name.
#include <sys/types.h>

#include <atomic>

#include "drover/base/error.hpp"
#include "drover/tensor/slab_allocator.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

// One per process, never freed: libraries free arrays until the process exits.
std::atomic<SlabAllocator*> the_allocator{nullptr};

SlabAllocator& allocator() {
  SlabAllocator* const made = the_allocator.load(std::memory_order_acquire);
  if (made != nullptr) return *made;
  throw Error(Errc::invalid_argument, "this process does not allocate from slabs yet",
              "call drover.torch.use_slabs() or drover.cupy.use_slabs() first");
}

void use_slabs(const PySession& session, const std::string& backend, std::optional<std::uint64_t> cached_bytes) {
  if (the_allocator != nullptr) return;
  auto made = std::make_unique<SlabAllocator>(
      session.memory,
      SlabAllocatorOptions{.backend = Place::parse(backend + ":0").backend, .cached_bytes = cached_bytes});
  SlabAllocator* expected = nullptr;
  if (!the_allocator.compare_exchange_strong(expected, made.get())) return;
  static_cast<void>(made.release());  // NOLINT(bugprone-unused-return-value): the_allocator owns it now
}

nb::dict usage(std::optional<int> device) {
  const SlabAllocatorUsage now = allocator().usage(device);
  nb::dict all;
  all["blocks"] = now.blocks;
  all["bytes"] = now.bytes;
  all["cached_blocks"] = now.cached_blocks;
  all["cached_bytes"] = now.cached_bytes;
  all["hits"] = now.hits;
  all["misses"] = now.misses;
  return all;
}

}  // namespace

void bind_slabs(nb::module_& module) {
  module.def("use_slabs", &use_slabs, nb::arg("session"), nb::arg("backend"), nb::arg("cached_bytes").none(),
             "Make the exported functions allocate from the slabs of a session; once per process.");
  module.def("slabs_usage", &usage, nb::arg("device").none() = nb::none(), "Counts of blocks in use and cached.");
  module.def(
      "empty_slabs_cache", [] { allocator().empty_cache(); }, nb::call_guard<Released>(), "Free the cached blocks.");
  module.def(
      "slabs_allocate",
      [](std::uint64_t bytes, int device, std::uintptr_t stream) {
        return allocator().allocate(device, bytes, stream).address;
      },
      nb::arg("bytes"), nb::arg("device"), nb::arg("stream"), nb::call_guard<Released>(),
      "Allocate a block; return its address.");
  module.def(
      "slabs_free", [](std::uint64_t address) { allocator().free({address}); }, nb::arg("address"),
      nb::call_guard<Released>(), "Free a block.");
}

}  // namespace drover::python

// For torch's CUDAPluggableAllocator, which turns exceptions into Python exceptions.
#define DROVER_EXPORTED extern "C" __attribute__((visibility("default")))

DROVER_EXPORTED void* drover_slabs_alloc(ssize_t bytes, int device, void* stream) {
  const auto ptr = drover::python::allocator().allocate(device, static_cast<std::uint64_t>(bytes),
                                                        reinterpret_cast<std::uintptr_t>(stream));
  return reinterpret_cast<void*>(ptr.address);  // NOLINT(performance-no-int-to-ptr): torch's type
}

DROVER_EXPORTED void drover_slabs_free(void* ptr, ssize_t /*bytes*/, int /*device*/, void* /*stream*/) {
  drover::python::allocator().free({reinterpret_cast<std::uint64_t>(ptr)});
}

DROVER_EXPORTED void drover_slabs_record_stream(void* ptr, void* stream) {
  drover::python::allocator().also_used_in({reinterpret_cast<std::uint64_t>(ptr)},
                                           reinterpret_cast<std::uintptr_t>(stream));
}
