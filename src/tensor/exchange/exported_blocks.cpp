#include "tensor/exchange/exported_blocks.hpp"

#include <limits>
#include <utility>

#include "tensor/memory/tensor_storage.hpp"

namespace drover::tensor {

DevicePtr address_of(const Block& block) {
  if (block.place().is_device) return block.device_ptr();
  return {reinterpret_cast<std::uint64_t>(block.bytes().data())};
}

ExportedBlocks& ExportedBlocks::instance() {
  static auto* const made = new ExportedBlocks();  // never freed: libraries may release blocks during process exit
  return *made;
}

ExportedBlocks::Entry::Entry(const std::shared_ptr<TensorStorage>& storage, bool is_divided)
    : begin_(address_of(storage->block()).address) {
  ExportedBlocks& all = instance();
  const MutexLock lock(all.mutex_);
  number_ = all.next_++;
  all.regions_.try_emplace(
      {begin_, number_},
      Region{
          .place = storage->place(), .bytes = storage->block().size(), .is_divided = is_divided, .storage = storage});
}

ExportedBlocks::Entry::~Entry() {
  if (number_ == 0) return;
  ExportedBlocks& all = instance();
  const MutexLock lock(all.mutex_);
  all.regions_.erase({begin_, number_});
}

// Blocks do not overlap, so only entries of the nearest block at or below `begin` can match.
ExportedBlocks::Found ExportedBlocks::find(const Place& place, DevicePtr begin, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  auto next = regions_.upper_bound({begin.address, std::numeric_limits<std::uint64_t>::max()});
  Found found;
  if (next == regions_.begin()) return found;
  const std::uint64_t start = std::prev(next)->first.first;
  while (next != regions_.begin() && std::prev(next)->first.first == start) {
    const Region& region = (--next)->second;
    const std::uint64_t offset = begin.address - start;
    if (region.place != place || offset > region.bytes || bytes > region.bytes - offset) continue;
    if (found.storage != nullptr && !region.is_divided) continue;
    if (auto storage = region.storage.lock())
      found = {.storage = std::move(storage), .is_divided = region.is_divided};
    if (found.is_divided) break;
  }
  return found;
}

}  // namespace drover::tensor
