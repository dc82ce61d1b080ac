#include "pool/run/wire.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "drover/base/error.hpp"
#include "drover/tensor/send.hpp"

namespace drover::pool {
namespace {

constexpr std::size_t kAlignment = 8;

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Precedes a record of tensors.
struct PackedHeader {
  std::uint32_t bytes = 0;
  std::uint32_t leases = 0;
};

void check(bool holds) {
  if (!holds) {
    throw Error(Errc::corrupt, "a message between an application and a worker of its pool is truncated",
                "application and workers must be the same program");
  }
}

}  // namespace

void WireWriter::clear() noexcept {
  bytes_.clear();
  leases_.clear();
}

std::size_t WireWriter::append(std::span<const std::byte> bytes) {
  const std::size_t at = bytes_.size();
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  bytes_.resize(aligned(bytes_.size()));
  return at;
}

void WireWriter::append(std::span<const Tensor> tensors) {
  if (tensors.empty()) return;
  PackedTensors packed = pack_all(tensors);
  add(PackedHeader{.bytes = static_cast<std::uint32_t>(packed.record.size()),
                   .leases = static_cast<std::uint32_t>(packed.leases.size())});
  append(packed.record);
  std::ranges::move(packed.leases, std::back_inserter(leases_));
}

std::span<const std::byte> WireReader::bytes(std::size_t count) {
  check(count <= rest_.size() && aligned(count) <= rest_.size());
  const auto head = rest_.first(count);
  rest_ = rest_.subspan(aligned(count));
  return head;
}

std::vector<Tensor> WireReader::tensors(std::size_t count, const Memory& memory) {
  if (count == 0) return {};
  const auto head = header<PackedHeader>();
  check(head.leases <= leases_.size() - next_lease_);
  const auto leases = std::span(leases_).subspan(next_lease_, head.leases);
  next_lease_ += head.leases;
  try {
    auto tensors = unpack_all(memory, bytes(head.bytes), leases);
    check(tensors.size() == count);
    return tensors;
  } catch (...) {
    for (Lease& lease : leases) lease.release();
    throw;
  }
}

}  // namespace drover::pool
