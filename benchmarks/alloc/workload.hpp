// benchmarks/alloc/workload.hpp: the cost of allocating and releasing a block of memory.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "drover/tensor/memory.hpp"
#include "support/report.hpp"

namespace drover::bench {

/// An allocator. Slots are numbered; each holds one block at a time.
class Allocator {
 public:
  virtual ~Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// Allocates a block of `bytes` in an empty slot.
  virtual void allocate(std::size_t slot, std::size_t bytes) = 0;
  /// Releases the block of a slot.
  virtual void release(std::size_t slot) = 0;

 protected:
  Allocator() = default;
};

/// One contender.
struct Contender {
  const char* name;
  std::function<std::unique_ptr<Allocator>(std::size_t slots)> make;
};

/// drover's blocks at a place: shared memory of a session.
[[nodiscard]] std::unique_ptr<Allocator> make_drover(const std::shared_ptr<Membership>& membership,
                                                     const Place& place, std::size_t slots);
/// malloc: memory of one process.
[[nodiscard]] std::unique_ptr<Allocator> make_malloc(std::size_t slots);
/// Whether the program was built with Boost.
[[nodiscard]] bool has_boost();
/// Boost's managed memory in anonymous shared memory.
[[nodiscard]] std::unique_ptr<Allocator> make_boost(std::size_t slots);
/// Device::allocate, the driver's own call: memory of a device for one process.
[[nodiscard]] std::unique_ptr<Allocator> make_device(const Place& place, std::size_t slots);

}  // namespace drover::bench
