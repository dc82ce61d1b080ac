// Blocks of a session's memory, which survive the death of any process.
#include <utility>

#include "alloc/workload.hpp"

namespace drover::bench {
namespace {

class DroverBlocks final : public Allocator {
 public:
  DroverBlocks(const std::shared_ptr<Membership>& membership, const Place& place, std::size_t slots)
      : memory_(membership), place_(place), blocks_(slots) {}
  void allocate(std::size_t slot, std::size_t bytes) override { blocks_[slot] = memory_.allocate(place_, bytes); }
  void release(std::size_t slot) override { blocks_[slot].release(); }

 private:
  Memory memory_;
  Place place_;
  std::vector<Block> blocks_;
};

}  // namespace

std::unique_ptr<Allocator> make_drover(const std::shared_ptr<Membership>& membership, const Place& place,
                                       std::size_t slots) {
  return std::make_unique<DroverBlocks>(membership, place, slots);
}

}  // namespace drover::bench
