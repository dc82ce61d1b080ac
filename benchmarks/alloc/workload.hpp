// benchmarks/alloc/workload.hpp: what it costs to get a block of memory and to give it back.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "drover/tensor/memory.hpp"
#include "support/report.hpp"

namespace drover::bench {

/// A way to get memory. Slots are numbered; each holds one block at a time.
class Allocator {
 public:
  virtual ~Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// Puts a block of `bytes` into an empty slot.
  virtual void allocate(std::size_t slot, std::size_t bytes) = 0;
  /// Empties a slot.
  virtual void release(std::size_t slot) = 0;

 protected:
  Allocator() = default;
};

/// One contender.
struct Contender {
  const char* name;
  std::function<std::unique_ptr<Allocator>(std::size_t slots)> make;
};

/// Shared memory of a session: drover's blocks at a place.
[[nodiscard]] std::unique_ptr<Allocator> make_drover(const std::shared_ptr<Membership>& membership,
                                                     const Place& place, std::size_t slots);
/// Memory of one process: malloc.
[[nodiscard]] std::unique_ptr<Allocator> make_malloc(std::size_t slots);
/// Whether the program was built with Boost.
[[nodiscard]] bool has_boost();
/// Memory that processes share: Boost's managed memory, in anonymous shared memory.
[[nodiscard]] std::unique_ptr<Allocator> make_boost(std::size_t slots);
/// Memory of a device for one process: Device::allocate, which is the driver's own call.
[[nodiscard]] std::unique_ptr<Allocator> make_device(const Place& place, std::size_t slots);

}  // namespace drover::bench
