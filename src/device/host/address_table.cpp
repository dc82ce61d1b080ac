#include "device/host/address_table.hpp"

#include <iterator>

namespace drover::host {

bool AddressTable::add(std::uint64_t begin, std::size_t bytes) {
  const MutexLock lock(mutex_);
  const auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first - begin < bytes) return false;
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (begin - before->first < before->second) return false;
  }
  ranges_.emplace_hint(next, begin, bytes);
  return true;
}

void AddressTable::remove(std::uint64_t begin) {
  const MutexLock lock(mutex_);
  ranges_.erase(begin);
}

bool AddressTable::contains(std::uint64_t begin, std::size_t bytes) const {
  const MutexLock lock(mutex_);
  const auto next = ranges_.upper_bound(begin);
  if (next == ranges_.begin()) return false;
  const auto& [start, length] = *std::prev(next);
  const std::uint64_t offset = begin - start;
  return offset <= length && bytes <= length - offset;
}

}  // namespace drover::host
