// drover/tensor/slab_allocator.hpp: device memory by address, for allocators of other libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "drover/tensor/memory.hpp"

namespace drover {

/// What a SlabAllocator serves, and keeps.
struct SlabAllocatorOptions {
  BackendKind backend = BackendKind::cuda;  ///< whose devices
  /// Freed memory that is kept for the next allocation, at most, on each device. Unless given, an eighth of its
  /// memory.
  std::optional<std::uint64_t> cached_bytes;
};

/// What a SlabAllocator has given out, and has in reserve.
struct SlabAllocatorUsage {
  std::uint64_t blocks = 0;         ///< given out and not freed
  std::uint64_t bytes = 0;          ///< of these
  std::uint64_t cached_blocks = 0;  ///< freed and kept
  std::uint64_t cached_bytes = 0;   ///< of these
  std::uint64_t hits = 0;           ///< allocations that took one of those
  std::uint64_t misses = 0;         ///< all others
};

/// Lets another library of this process allocate in the session's slabs, so that each of its arrays is handed to
/// other processes as a tensor is: by a lease, without a copy, and alive when this process dies (import_tensor knows
/// it by its address).
///
/// Memory belongs to a stream, as the library knows it: what is freed there is given out again there at once, since
/// the stream does its work in order, and elsewhere after that work is done. A block that another process, or a
/// message, has a lease on is never given out again: freeing it ends this process's lease, and it is theirs.
///
/// Safe for all threads. No mutex is held while memory is taken, given back, or waited for.
class SlabAllocator {
 public:
  /// Takes nothing yet.
  explicit SlabAllocator(const Memory& memory, const SlabAllocatorOptions& options = {});
  /// Gives everything back, also what was not freed, after the streams have done what they were given.
  ~SlabAllocator();
  SlabAllocator(const SlabAllocator&) = delete;
  SlabAllocator& operator=(const SlabAllocator&) = delete;

  /// At least `bytes` on a device for use in `stream`, at a multiple of 512; for 0 bytes the address 0. When the
  /// device has no more, or the budget is used up, the reserve is given back first, and streams are waited for.
  /// Throws as `Memory::allocate`.
  [[nodiscard]] DevicePtr allocate(int device, std::uint64_t bytes, std::uintptr_t stream);
  /// Says that `stream` uses it, too: it is not given out again before that has done what it was given until `free`.
  void also_used_in(DevicePtr ptr, std::uintptr_t stream) noexcept;
  /// Ends it; what the streams were given until now may still use it. An address that was not given out is logged. In
  /// a forked child nothing.
  void free(DevicePtr ptr) noexcept;
  /// Gives the reserve back, and what was freed for good: as far as its streams are done, the rest at one of the next
  /// calls.
  void empty_cache() noexcept;
  /// Of one device, or of all.
  [[nodiscard]] SlabAllocatorUsage usage(std::optional<int> device = std::nullopt) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace drover
