#include "shared_regions.hpp"

#include <algorithm>

namespace drover::python {

SharedRegions& SharedRegions::instance() {
  static auto* const made = new SharedRegions();  // never freed: buffers are released while the interpreter ends
  return *made;
}

void SharedRegions::add(const std::byte* begin, const Tensor& tensor) {
  const MutexLock lock(mutex_);
  longest_ = std::max(longest_, tensor.bytes());
  Region& region = regions_[begin];
  // The longest of the tensors that begin here covers the others.
  if (region.uses++ == 0 || region.tensor.bytes() < tensor.bytes()) region.tensor = tensor;
}

void SharedRegions::remove(const std::byte* begin) {
  Tensor last;  // destroyed after the mutex is released
  const MutexLock lock(mutex_);
  const auto found = regions_.find(begin);
  if (found == regions_.end() || --found->second.uses != 0) return;
  last = std::move(found->second.tensor);
  regions_.erase(found);
}

std::optional<Tensor> SharedRegions::find(const std::byte* begin, std::size_t bytes) {
  const MutexLock lock(mutex_);
  // Regions may be nested, for example if a part of an array came back: the closest one before this address may be
  // too short.
  for (auto next = regions_.upper_bound(begin); next != regions_.begin();) {
    const auto& [start, region] = *--next;
    const auto offset = static_cast<std::size_t>(begin - start);
    if (offset >= longest_) break;
    if (offset + bytes > region.tensor.bytes()) continue;
    return region.tensor.slice(0, static_cast<std::int64_t>(offset), static_cast<std::int64_t>(offset + bytes));
  }
  return std::nullopt;
}

}  // namespace drover::python
