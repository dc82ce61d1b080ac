// The peers that are always available: memory of one process, on the host and on a device.
#include <cstdlib>
#include <new>

#include "alloc/workload.hpp"
#include "drover/base/bytes.hpp"
#include "drover/device/backend.hpp"

namespace drover::bench {
namespace {

// NOLINTBEGIN(cppcoreguidelines-no-malloc): it is what is measured
class Malloc final : public Allocator {
 public:
  explicit Malloc(std::size_t slots) : blocks_(slots) {}
  ~Malloc() override {
    for (void* const block : blocks_) std::free(block);
  }
  Malloc(const Malloc&) = delete;
  Malloc& operator=(const Malloc&) = delete;
  void allocate(std::size_t slot, std::size_t bytes) override {
    blocks_[slot] = std::malloc(bytes);
    if (blocks_[slot] == nullptr) throw std::bad_alloc();
  }
  void release(std::size_t slot) override {
    std::free(blocks_[slot]);
    blocks_[slot] = nullptr;
  }

 private:
  std::vector<void*> blocks_;
};
// NOLINTEND(cppcoreguidelines-no-malloc)

class DeviceBlocks final : public Allocator {
 public:
  DeviceBlocks(const Place& place, std::size_t slots)
      : device_(backend_of(place.backend).open(place.index)), blocks_(slots) {}
  void allocate(std::size_t slot, std::size_t bytes) override { blocks_[slot] = device_.allocate(bytes); }
  void release(std::size_t slot) override { blocks_[slot].reset(); }

 private:
  Device& device_;
  std::vector<std::unique_ptr<DeviceMemory>> blocks_;
};

}  // namespace

std::unique_ptr<Allocator> make_malloc(std::size_t slots) { return std::make_unique<Malloc>(slots); }
std::unique_ptr<Allocator> make_device(const Place& place, std::size_t slots) {
  return std::make_unique<DeviceBlocks>(place, slots);
}

}  // namespace drover::bench
