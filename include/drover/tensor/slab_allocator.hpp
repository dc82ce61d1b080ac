// drover/tensor/slab_allocator.hpp: device memory by address, for allocators of other libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "drover/tensor/memory.hpp"

namespace drover {

/// Options of a SlabAllocator.
struct SlabAllocatorOptions {
  BackendKind backend = BackendKind::cuda;  ///< of the devices
  /// Most freed memory that is cached on each device; by default an eighth of its memory, or nothing for a library
  /// that has its own cache (`is_divided`).
  std::optional<std::uint64_t> cached_bytes;
  /// Whether the library makes many arrays in what it allocates here, and reuses their memory by itself, as torch and
  /// CuPy do. An array that is sent is then held until its receivers are done, so that the library cannot reuse it.
  bool is_divided = false;
};

/// What a SlabAllocator has allocated and cached.
struct SlabAllocatorUsage {
  std::uint64_t blocks = 0;         ///< allocated and not freed
  std::uint64_t bytes = 0;          ///< of these
  std::uint64_t cached_blocks = 0;  ///< freed and cached
  std::uint64_t cached_bytes = 0;   ///< of these
  std::uint64_t hits = 0;           ///< allocations from the cache
  std::uint64_t misses = 0;         ///< all other allocations
};

/// Lets another library of this process allocate in the session's slabs, so that its arrays are sent as tensors are:
/// by a lease, without a copy, and alive after this process dies (import_tensor recognizes them by address).
///
/// Memory belongs to a stream, as the library names it. What is freed in a stream is reused there at once, since the
/// stream does its work in order, and elsewhere after that work is done. A block on which another process or a
/// message has a lease is never reused: `free` ends this process's lease, and the others keep theirs.
///
/// If the library divides its allocations (`SlabAllocatorOptions::is_divided`), `import_tensor` keeps the
/// `keep_alive` of each array until no process and no message has a lease for that array. All calls may be made with
/// locks that the library's deleters need: they release none.
///
/// Safe for all threads. Holds no mutex while memory is allocated, released, or waited for.
class SlabAllocator {
 public:
  /// Allocates nothing yet.
  explicit SlabAllocator(const Memory& memory, const SlabAllocatorOptions& options = {});
  /// Releases everything, even what was not freed, after the streams have done what they were given.
  ~SlabAllocator();
  SlabAllocator(const SlabAllocator&) = delete;
  SlabAllocator& operator=(const SlabAllocator&) = delete;

  /// At least `bytes` on a device for use in `stream`, aligned to 512; address 0 for 0 bytes. If the device or the
  /// budget has no more, empties the cache and waits for streams, then retries. Throws as `Memory::allocate`.
  [[nodiscard]] DevicePtr allocate(int device, std::uint64_t bytes, std::uintptr_t stream);
  /// Records that `stream` uses the memory too: it is reused only after what `stream` was given until `free` is done.
  void also_used_in(DevicePtr ptr, std::uintptr_t stream) noexcept;
  /// Frees the memory; what the streams were given until now may still use it. Logs an error for an unknown address.
  /// Does nothing in a forked child.
  void free(DevicePtr ptr) noexcept;
  /// The device of allocated memory; nullopt if this allocator did not allocate it.
  [[nodiscard]] std::optional<int> device_of(DevicePtr ptr) const;
  /// As `free`, for memory that no stream uses any more.
  void free_unused(DevicePtr ptr) noexcept;
  /// Releases the cache, and freed memory that cannot be reused: now if its streams are done, or in a later call.
  void empty_cache() noexcept;
  /// Usage of one device, or of all.
  [[nodiscard]] SlabAllocatorUsage usage(std::optional<int> device = std::nullopt) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace drover
