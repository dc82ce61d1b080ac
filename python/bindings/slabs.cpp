// Device memory for the allocators of torch and CuPy: functions that they call by name, and who uses them.
#include <sys/types.h>

#include <atomic>

#include "drover/base/error.hpp"
#include "drover/tensor/slab_allocator.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

// One for the process, never freed: libraries free their arrays until the very end.
std::atomic<SlabAllocator*> the_allocator{nullptr};

SlabAllocator& allocator() {
  SlabAllocator* const made = the_allocator.load(std::memory_order_acquire);
  if (made != nullptr) return *made;
  throw Error(Errc::invalid_argument, "memory of drover's slabs was asked for before anybody said which",
              "call drover.torch.use_slabs() or drover.cupy.use_slabs()");
}

void use_slabs(const PySession& session, const std::string& backend, std::optional<std::uint64_t> cached_bytes) {
  if (the_allocator != nullptr) return;
  auto made = std::make_unique<SlabAllocator>(
      session.memory,
      SlabAllocatorOptions{.backend = Place::parse(backend + ":0").backend, .cached_bytes = cached_bytes});
  SlabAllocator* nobody = nullptr;
  if (!the_allocator.compare_exchange_strong(nobody, made.get())) return;
  static_cast<void>(made.release());  // NOLINT(bugprone-unused-return-value): it is the process's now
}

nb::dict usage(std::optional<int> device) {
  const SlabAllocatorUsage told = allocator().usage(device);
  nb::dict all;
  all["blocks"] = told.blocks;
  all["bytes"] = told.bytes;
  all["cached_blocks"] = told.cached_blocks;
  all["cached_bytes"] = told.cached_bytes;
  all["hits"] = told.hits;
  all["misses"] = told.misses;
  return all;
}

}  // namespace

void bind_slabs(nb::module_& module) {
  module.def("use_slabs", &use_slabs, nb::arg("session"), nb::arg("backend"), nb::arg("cached_bytes").none(),
             "Let the exported functions allocate in the slabs of a session; once for a process.");
  module.def("slabs_usage", &usage, nb::arg("device").none() = nb::none(),
             "What these gave out, and have in reserve.");
  module.def(
      "empty_slabs_cache", [] { allocator().empty_cache(); }, nb::call_guard<Released>(), "Give the reserve back.");
  module.def(
      "slabs_allocate",
      [](std::uint64_t bytes, int device, std::uintptr_t stream) {
        return allocator().allocate(device, bytes, stream).address;
      },
      nb::arg("bytes"), nb::arg("device"), nb::arg("stream"), nb::call_guard<Released>(), "An address.");
  module.def(
      "slabs_free", [](std::uint64_t address) { allocator().free({address}); }, nb::arg("address"),
      nb::call_guard<Released>(), "End it.");
}

}  // namespace drover::python

// As torch's CUDAPluggableAllocator wants them. What they throw, torch turns into an exception of Python.
#define DROVER_EXPORTED extern "C" __attribute__((visibility("default")))

DROVER_EXPORTED void* drover_slabs_alloc(ssize_t bytes, int device, void* stream) {
  const auto ptr = drover::python::allocator().allocate(device, static_cast<std::uint64_t>(bytes),
                                                        reinterpret_cast<std::uintptr_t>(stream));
  return reinterpret_cast<void*>(ptr.address);  // NOLINT(performance-no-int-to-ptr): that is what it is to torch
}

DROVER_EXPORTED void drover_slabs_free(void* ptr, ssize_t /*bytes*/, int /*device*/, void* /*stream*/) {
  drover::python::allocator().free({reinterpret_cast<std::uint64_t>(ptr)});
}

DROVER_EXPORTED void drover_slabs_record_stream(void* ptr, void* stream) {
  drover::python::allocator().also_used_in({reinterpret_cast<std::uint64_t>(ptr)},
                                           reinterpret_cast<std::uintptr_t>(stream));
}
