// tensor/exchange/array_copies.hpp: copies of arrays of other libraries, in memory of the session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "drover/tensor/dlpack.hpp"
#include "tensor/memory/tensor_storage.hpp"

namespace drover::tensor {

/// The bytes from the first element of an array to the last.
struct ArrayRange {
  DevicePtr begin;
  std::uint64_t bytes = 0;

  explicit ArrayRange(const DlpackArray& array);
  [[nodiscard]] std::uint64_t end() const noexcept { return begin.address + bytes; }
};

/// The same elements in a memory in which the first of them lies at byte `bytes`.
[[nodiscard]] TensorLayout moved(const TensorLayout& layout, std::uint64_t bytes);

/// Whether most of the bytes between the first element and the last belong to no element.
[[nodiscard]] bool is_sparse(const DlpackArray& array) noexcept;

/// Copies arrays of one place and stream to memory of the session there. Plans first: ranges that overlap are copied
/// together, small ones share blocks, large ones have blocks of their own, so that a receiver which keeps one array
/// of a message does not keep the others. Of an array in host memory whose elements lie far apart, only the elements
/// are copied.
class ArrayCopies {
 public:
  /// Requires: all arrays at one place, of one stream, none of them empty; `requests` outlive this.
  ArrayCopies(Memory memory, std::span<const ImportRequest* const> requests);

  /// Allocates, copies, and returns the tensors in the order of the requests. A device does its copies later, after
  /// the work of the stream. Throws as `Memory::allocate`.
  [[nodiscard]] std::vector<Tensor> run();

 private:
  // Bytes that are copied as one, and where to.
  struct Region {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::span<const std::size_t> members;  // of the requests; a part of order_
    bool is_gathered = false;              // only the elements of its one member are copied, next to each other
    std::uint64_t bytes = 0;               // in the block
    std::size_t block = 0;
    std::uint64_t offset = 0;
  };

  [[nodiscard]] const DlpackArray& array_of(std::size_t index) const noexcept { return requests_[index]->array; }
  [[nodiscard]] bool can_join(const Region& region, std::size_t index) const;
  void find_regions();
  void find_gathered();
  [[nodiscard]] bool are_apart(const Region& region) const;
  void plan_blocks();
  void copy_on_host();
  void copy_on_device();
  void hold_sources(std::size_t index) const;
  [[nodiscard]] Tensor tensor_of(const Region& region, std::size_t index) const;

  const Memory memory_;
  const std::span<const ImportRequest* const> requests_;
  std::vector<ArrayRange> ranges_;  // of the arrays
  std::vector<std::size_t> order_;  // the requests by address
  std::vector<Region> regions_;
  std::vector<std::uint64_t> block_bytes_;
  std::vector<std::shared_ptr<TensorStorage>> blocks_;  // shared: with the tensors
};

}  // namespace drover::tensor
