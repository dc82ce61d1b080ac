#include "pool/run/wire.hpp"

#include <iterator>
#include <utility>

#include "drover/base/error.hpp"
#include "drover/tensor/send.hpp"

namespace drover::pool {
namespace {

constexpr std::size_t kAlignment = 8;

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

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
  const std::size_t bytes_before = bytes_.size();
  const std::size_t leases_before = leases_.size();
  try {
    for (const auto& tensor : tensors) {
      PackedTensor packed = pack(tensor);
      append(packed.record);
      leases_.push_back(std::move(packed.lease));
    }
  } catch (...) {
    bytes_.resize(bytes_before);
    leases_.resize(leases_before);
    throw;
  }
}

std::span<const std::byte> WireReader::bytes(std::size_t count) {
  check(count <= rest_.size() && aligned(count) <= rest_.size());
  const auto head = rest_.first(count);
  rest_ = rest_.subspan(aligned(count));
  return head;
}

std::vector<Lease> WireReader::take_leases(std::size_t count) {
  check(count <= leases_.size() - next_lease_);
  const auto first = leases_.begin() + static_cast<std::ptrdiff_t>(next_lease_);
  next_lease_ += count;
  return {std::make_move_iterator(first), std::make_move_iterator(first + static_cast<std::ptrdiff_t>(count))};
}

std::vector<Tensor> WireReader::tensors(std::size_t count, const Memory& memory) {
  auto leases = take_leases(count);
  const auto records = bytes(count * kTensorRecordBytes);
  std::vector<Tensor> tensors;
  tensors.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    tensors.push_back(
        unpack(memory, records.subspan(i * kTensorRecordBytes, kTensorRecordBytes), std::move(leases[i])));
  }
  return tensors;
}

void WireReader::skip_tensors(std::size_t count) {
  static_cast<void>(take_leases(count));
  static_cast<void>(bytes(count * kTensorRecordBytes));
}

}  // namespace drover::pool
