// Boost.Interprocess: an allocator in shared memory, which is lost if a process dies during an operation.
#include "alloc/workload.hpp"

#ifdef DROVER_BENCH_BOOST

#include <boost/interprocess/anonymous_shared_memory.hpp>
#include <boost/interprocess/managed_external_buffer.hpp>

#include "drover/base/bytes.hpp"

namespace drover::bench {
namespace {

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

}  // namespace

bool has_boost() { return true; }
std::unique_ptr<Allocator> make_boost(std::size_t slots) { return std::make_unique<Boost>(slots); }

}  // namespace drover::bench

#else

namespace drover::bench {

bool has_boost() { return false; }
std::unique_ptr<Allocator> make_boost(std::size_t) { return nullptr; }

}  // namespace drover::bench

#endif
