#include "tensor/exchange/array_copies.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/base/trace.hpp"
#include "drover/device/backend.hpp"
#include "drover/device/stream.hpp"
#include "tensor/layout/copy_strided.hpp"
#include "tensor/tensor_access.hpp"

namespace drover::tensor {
namespace {

constexpr std::uint64_t kAlignment = 512;
constexpr std::uint64_t kLarge = 8 * kMiB;
// At most half of a slab of the common size.
constexpr std::uint64_t kPackedBytes = 32 * kMiB;
// Beyond that, blocks of small arrays are larger.
constexpr std::uint64_t kPackedBlocks = 16;

// The bytes of an array: runs without a gap, which begin at multiples of the period from the first.
struct Comb {
  std::uint64_t run = 0;
  std::uint64_t period = 0;  // 0: there is one run
};

Comb comb_of(const TensorLayout& layout) {
  const std::uint64_t item = size_of(layout.dtype());
  std::vector<std::pair<std::uint64_t, std::uint64_t>> dims;  // stride in bytes, and size
  for (std::size_t i = 0; i < layout.shape().size(); ++i) {
    const auto stride = static_cast<std::uint64_t>(layout.strides()[i]) * item;
    const auto size = static_cast<std::uint64_t>(layout.shape()[i]);
    if (size > 1 && stride > 0) dims.emplace_back(stride, size);
  }
  std::ranges::sort(dims);
  Comb comb{.run = item};
  for (const auto& [stride, size] : dims) {
    if (comb.period == 0 && stride <= comb.run) {
      comb.run += stride * (size - 1);
    } else {
      comb.period = std::gcd(comb.period, stride);
    }
  }
  return comb;
}

std::uint64_t aligned(std::uint64_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

const std::byte* host_address(std::uint64_t address) noexcept {
  return reinterpret_cast<const std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

ArrayRange::ArrayRange(const DlpackArray& array) {
  const ByteRange extent = array.layout.extent_bytes();
  begin = array.base + extent.begin;
  bytes = extent.end - extent.begin;
}

TensorLayout moved(const TensorLayout& layout, std::uint64_t bytes) {
  return TensorLayout::strided(layout.dtype(), layout.shape(), layout.strides(),
                               static_cast<std::int64_t>(bytes / size_of(layout.dtype())));
}

bool is_sparse(const DlpackArray& array) noexcept {
  const ByteRange extent = array.layout.extent_bytes();
  return extent.end - extent.begin > 2 * array.layout.bytes();
}

ArrayCopies::ArrayCopies(Memory memory, std::span<const ImportRequest* const> requests)
    : memory_(std::move(memory)), requests_(requests) {
  find_regions();
  find_gathered();
  plan_blocks();
}

// An array in a region keeps its distance from the region's first byte, which must suit its elements.
bool ArrayCopies::can_join(const Region& region, std::size_t index) const {
  const std::uint64_t begin = ranges_[index].begin.address;
  return begin < region.end && (begin - region.begin) % size_of(array_of(index).layout.dtype()) == 0;
}

void ArrayCopies::find_regions() {
  ranges_.reserve(requests_.size());
  for (std::size_t i = 0; i < requests_.size(); ++i) ranges_.emplace_back(array_of(i));
  order_.resize(requests_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::sort(order_, {}, [&](std::size_t index) { return ranges_[index].begin.address; });
  regions_.reserve(requests_.size());
  for (const std::size_t& index : order_) {
    const ArrayRange& range = ranges_[index];
    if (regions_.empty() || !can_join(regions_.back(), index)) {
      regions_.push_back({.begin = range.begin.address, .end = range.end(), .members = {&index, 0}});
    }
    Region& region = regions_.back();
    region.end = std::max(region.end, range.end());
    region.members = {region.members.data(), region.members.size() + 1};
  }
}

// A device copies ranges only, so there the gaps go when the range has been copied.
void ArrayCopies::find_gathered() {
  std::vector<Region> all;
  all.reserve(regions_.size());
  for (Region& region : regions_) {
    std::uint64_t elements = 0;
    for (const std::size_t index : region.members) elements += array_of(index).layout.bytes();
    region.bytes = region.end - region.begin;
    const bool has_gaps = region.bytes > 2 * elements && !array_of(region.members.front()).place.is_device;
    if (!has_gaps || !are_apart(region)) {
      all.push_back(region);
      continue;
    }
    for (const std::size_t& index : region.members) {
      const ArrayRange& range = ranges_[index];
      all.push_back({.begin = range.begin.address,
                     .end = range.end(),
                     .members = {&index, 1},
                     .is_gathered = true,
                     .bytes = array_of(index).layout.bytes()});
    }
  }
  regions_ = std::move(all);
}

// Whether no two members share a byte, as far as that shows: like columns of one table, they repeat at distances that
// have a common divisor, and begin at different places within it.
bool ArrayCopies::are_apart(const Region& region) const {
  if (region.members.size() == 1) return true;
  std::uint64_t period = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> runs;  // begin, and bytes without a gap
  for (const std::size_t index : region.members) {
    const Comb comb = comb_of(array_of(index).layout);
    period = std::gcd(period, comb.period);
    runs.emplace_back(ranges_[index].begin.address, comb.run);
  }
  if (period == 0) return false;
  for (auto& [begin, bytes] : runs) begin %= period;
  std::ranges::sort(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::uint64_t next = i + 1 < runs.size() ? runs[i + 1].first : runs.front().first + period;
    if (runs[i].first + runs[i].second > next) return false;
  }
  return true;
}

void ArrayCopies::plan_blocks() {
  std::uint64_t small_bytes = 0;
  for (const Region& region : regions_) {
    if (region.bytes < kLarge) small_bytes += aligned(region.bytes);
  }
  const std::uint64_t most = std::max(kPackedBytes, small_bytes / kPackedBlocks);
  std::optional<std::size_t> open;  // the block that takes small regions
  for (Region& region : regions_) {
    const std::uint64_t bytes = region.bytes;
    const bool is_small = bytes < kLarge;
    if (is_small && open && aligned(block_bytes_[*open]) + bytes <= most) {
      region.block = *open;
      region.offset = aligned(block_bytes_[*open]);
      block_bytes_[*open] = region.offset + bytes;
      continue;
    }
    region.block = block_bytes_.size();
    block_bytes_.push_back(bytes);
    if (is_small) open = region.block;
  }
}

std::vector<Tensor> ArrayCopies::run() {
  const Place place = array_of(0).place;
  for (const std::uint64_t bytes : block_bytes_) {
    blocks_.push_back(std::make_shared<TensorStorage>(memory_, place, bytes));
  }
  const TraceSpan span("tensor.import.copied", std::accumulate(block_bytes_.begin(), block_bytes_.end(), 0UL));
  if (place.is_device) {
    copy_on_device();
  } else {
    copy_on_host();
  }
  std::vector<Tensor> tensors(requests_.size());
  for (const Region& region : regions_) {
    for (const std::size_t index : region.members) tensors[index] = tensor_of(region, index);
  }
  return tensors;
}

void ArrayCopies::copy_on_host() {
  for (const Region& region : regions_) {
    const std::span<const std::byte> from(host_address(region.begin), region.end - region.begin);
    if (!region.is_gathered) {
      blocks_[region.block]->write(region.offset, from);
      continue;
    }
    const TensorLayout& layout = array_of(region.members.front()).layout;
    const std::span<std::byte> to = blocks_[region.block]->block().bytes().subspan(region.offset, region.bytes);
    copy_strided(to, TensorLayout::contiguous(layout.dtype(), layout.shape()), from, moved(layout, 0));
  }
}

// On the stream of the other library itself, so that what it does later with the arrays comes after the copy.
void ArrayCopies::copy_on_device() {
  std::vector<DeviceCopy> copies;
  for (const Region& region : regions_) {
    copies.push_back({.to = blocks_[region.block]->block().device_ptr() + region.offset,
                      .from = {region.begin},
                      .bytes = region.end - region.begin});
  }
  const auto work = blocks_.front()->work_at(blocks_.front()->place());
  const auto end_uses = [&](std::uint64_t ticket) {
    for (std::size_t index = 0; index < blocks_.size(); ++index) {
      blocks_[index]->end_use({.work = work, .ticket = ticket});
      hold_sources(index);
    }
  };
  const auto& stream = requests_.front()->options.stream;
  if (!stream) return end_uses(work->submit([&](Stream& own) { own.copy_all(copies); }));
  const auto borrowed = work->device().borrow_stream(*stream);
  require_not_capturing(*borrowed);
  try {
    borrowed->copy_all(copies);
  } catch (...) {  // some may have been submitted
    end_uses(work->follow(*borrowed));
    throw;
  }
  end_uses(work->follow(*borrowed));
}

// The other library may reuse the memory of an array that it frees before the copy is done.
void ArrayCopies::hold_sources(std::size_t index) const {
  auto sources = std::make_shared<std::vector<std::shared_ptr<void>>>();
  for (const Region& region : regions_) {
    if (region.block != index) continue;
    for (const std::size_t member : region.members) {
      const auto& keep_alive = array_of(member).keep_alive;
      if (keep_alive.use_count() != 0) sources->push_back(keep_alive);
    }
  }
  if (!sources->empty()) blocks_[index]->hold(std::move(sources));
}

Tensor ArrayCopies::tensor_of(const Region& region, std::size_t index) const {
  const DlpackArray& array = array_of(index);
  if (region.is_gathered) {
    const auto layout = TensorLayout::contiguous(array.layout.dtype(), array.layout.shape());
    return TensorAccess::make(blocks_[region.block], moved(layout, region.offset));
  }
  const std::uint64_t offset = region.offset + ranges_[index].begin.address - region.begin;
  const Tensor whole = TensorAccess::make(blocks_[region.block], moved(array.layout, offset));
  return region.members.size() == 1 && is_sparse(array) ? whole.contiguous() : whole;
}

}  // namespace drover::tensor
