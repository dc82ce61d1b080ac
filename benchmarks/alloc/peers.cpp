// The peers: memory of one process, and shared memory that is lost when a process dies in an operation.
#include <boost/interprocess/anonymous_shared_memory.hpp>
#include <boost/interprocess/managed_external_buffer.hpp>

#include <cstdlib>
#include <new>

#include "alloc/workload.hpp"
#include "drover/base/bytes.hpp"
#include "drover/device/select.hpp"

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

namespace interprocess = boost::interprocess;

class Boost final : public Allocator {
 public:
  explicit Boost(std::size_t slots)
      : region_(interprocess::anonymous_shared_memory(kBytes)),
        buffer_(interprocess::create_only, region_.get_address(), kBytes),
        blocks_(slots) {}
  void allocate(std::size_t slot, std::size_t bytes) override { blocks_[slot] = buffer_.allocate(bytes); }
  void release(std::size_t slot) override { buffer_.deallocate(blocks_[slot]); }

 private:
  static constexpr std::size_t kBytes = kGiB;
  interprocess::mapped_region region_;
  interprocess::managed_external_buffer buffer_;
  std::vector<void*> blocks_;
};

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
std::unique_ptr<Allocator> make_boost(std::size_t slots) { return std::make_unique<Boost>(slots); }
std::unique_ptr<Allocator> make_device(const Place& place, std::size_t slots) {
  return std::make_unique<DeviceBlocks>(place, slots);
}

}  // namespace drover::bench
