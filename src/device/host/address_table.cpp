#include "device/host/address_table.hpp"

#include <iterator>

namespace drover::device::host {

bool AddressTable::add(std::uint64_t begin, std::size_t bytes, RangeNote note) {
  const MutexLock lock(mutex_);
  const auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first - begin < bytes) return false;
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (begin - before->first < before->second.bytes) return false;
  }
  note.number = ++last_number_;
  ranges_.emplace_hint(next, begin, Entry{bytes, note});
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
  const auto& [start, entry] = *std::prev(next);
  const std::uint64_t offset = begin - start;
  return offset <= entry.bytes && bytes <= entry.bytes - offset;
}

std::optional<AddressTable::Range> AddressTable::find(std::uint64_t address) const {
  const MutexLock lock(mutex_);
  const auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return std::nullopt;
  const auto& [start, entry] = *std::prev(next);
  if (address - start >= entry.bytes) return std::nullopt;
  return Range{.begin = start, .bytes = entry.bytes, .note = entry.note};
}

}  // namespace drover::device::host
