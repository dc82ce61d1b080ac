// tests/support/fake_driver/fake_memory.hpp: memory of the stand-in driver, for FAKE_MEMORY=1. Device memory is
// memory of the machine, work is done when it is submitted, and streams cannot wait.
#pragma once

#include <cstdint>

namespace drover::test::fake {

/// Kinds of memory that others may have; what fake_allocate makes.
enum class MemoryKind : int {
  plain,               ///< cuMemAlloc
  pool,                ///< cuMemAllocAsync
  managed,             ///< cuMemAllocManaged
  virtual_memory,      ///< cuMemMap of an exportable allocation
  virtual_not_shared,  ///< the same without a handle type
  opened,              ///< cuIpcOpenMemHandle
};

/// `unsigned long long fake_allocate(int kind, std::size_t bytes)`: memory as another library would make it, on the
/// first device, never freed; 0 if there is none. Found by dlsym.
using Allocate = unsigned long long (*)(int kind, std::size_t bytes);

/// The entry point of that name, or nullptr.
[[nodiscard]] void* memory_entry(const char* name);

}  // namespace drover::test::fake
