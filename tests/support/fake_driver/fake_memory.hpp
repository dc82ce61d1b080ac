// tests/support/fake_driver/fake_memory.hpp: memory of the stand-in driver, for FAKE_MEMORY=1. Device memory is host
// memory, work runs when it is submitted, and streams cannot wait.
#pragma once

#include <cstdint>

namespace drover::test::fake {

/// The kinds of memory that fake_allocate creates.
enum class MemoryKind : int {
  plain,               ///< cuMemAlloc
  pool,                ///< cuMemAllocAsync
  managed,             ///< cuMemAllocManaged
  virtual_memory,      ///< cuMemMap of an exportable allocation
  virtual_not_shared,  ///< the same without a handle type
  opened,              ///< cuIpcOpenMemHandle
};

/// `unsigned long long fake_allocate(int kind, std::size_t bytes)`: memory like that of another library, on the
/// first device, never freed; 0 on failure. Found by dlsym.
using Allocate = unsigned long long (*)(int kind, std::size_t bytes);

/// The entry point `name`; nullptr if there is none.
[[nodiscard]] void* memory_entry(const char* name);

}  // namespace drover::test::fake
