// The allocators of slabs of this process, for the libraries that call them.
#pragma once

#include <string>

#include "drover/base/error.hpp"
#include "drover/tensor/slab_allocator.hpp"

namespace drover::python {

/// The allocator of this process, or the one for libraries that divide their memory themselves. Throws
/// `Errc::invalid_argument` before `use_slabs`.
[[nodiscard]] SlabAllocator& allocator(bool is_divided);
/// As `allocator`; null before `use_slabs`.
[[nodiscard]] SlabAllocator* find_allocator(bool is_divided) noexcept;
/// Whether an allocation failed because a device, or a budget, has no more.
[[nodiscard]] bool is_shortage(const Error& error) noexcept;

/// Routes the calls of `cudaMalloc` and `cudaFree` of one loaded library, named by the end of its path, to the
/// allocator for divided memory; those of all other libraries stay as they are. Memory that the library allocated
/// before is freed as before. Throws `Errc::unsupported` if it does not call them through its import table.
void route_cuda_malloc(const std::string& library);

}  // namespace drover::python
