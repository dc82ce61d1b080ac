// Copies of elements between any two places.
#include <algorithm>
#include <array>
#include <functional>
#include <ranges>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "tensor/layout/copy_strided.hpp"
#include "tensor/tensor_access.hpp"

namespace drover::tensor {
namespace {

// With more pieces, a copy of all bytes through the host is cheaper.
constexpr std::int64_t kMostPieces = 256;
// The size of each of the two buffers for copies between devices that cannot reach each other.
constexpr std::int64_t kStageBytes = std::int64_t{8} << 20U;

// Elements that are contiguous in both memories; offsets and size in bytes.
struct CopyPiece {
  std::size_t to;
  std::size_t from;
  std::size_t bytes;
};

// The dimensions to step through, and the size of each piece.
struct CopyPieces {
  std::vector<SharedDim> outer;
  std::int64_t row = 1;  // elements of a piece
  [[nodiscard]] std::int64_t count() const {
    std::int64_t count = 1;
    for (const SharedDim& dim : outer) count *= dim.size;
    return count;
  }
};

CopyPieces pieces_of(const TensorLayout& to, const TensorLayout& from) {
  CopyPieces pieces{.outer = coalesced_dims_in_any_order(to, from)};
  if (!pieces.outer.empty() && pieces.outer.back().strides == std::array<std::int64_t, 2>{1, 1}) {
    pieces.row = pieces.outer.back().size;
    pieces.outer.pop_back();
  }
  return pieces;
}

void for_each_piece(const CopyPieces& pieces, const TensorLayout& to, const TensorLayout& from,
                    const std::function<void(const CopyPiece&)>& visit) {
  const std::size_t size = size_of(to.dtype());
  const std::int64_t count = pieces.count();
  for (std::int64_t nth = 0; nth < count; ++nth) {
    std::int64_t left = nth;
    std::array<std::int64_t, 2> at = {to.offset(), from.offset()};
    for (const SharedDim& dim : std::views::reverse(pieces.outer)) {
      const std::int64_t index = left % dim.size;
      left /= dim.size;
      for (std::size_t side = 0; side < 2; ++side) at[side] += index * dim.strides[side];
    }
    visit({.to = static_cast<std::size_t>(at[0]) * size,
           .from = static_cast<std::size_t>(at[1]) * size,
           .bytes = static_cast<std::size_t>(pieces.row) * size});
  }
}

void copy_on_host(const Tensor& to, const Tensor& from) {
  to.synchronize();
  from.synchronize();
  copy_strided(TensorAccess::storage(to)->block().bytes(), to.layout(), TensorAccess::storage(from)->block().bytes(),
               from.layout());
}

// Copies of unregistered host memory make the device wait for all earlier work, so this thread waits instead.
void begin_use(TensorStorage& storage, DeviceWork& work) {
  storage.begin_use(work);
  const bool is_registered = storage.place().is_device || storage.register_with(work.device());
  if (!is_registered) static_cast<void>(work.wait(work.latest(), Deadline::never()));
}

// One of the two lies on the device at `place`; the other on the same device, on one it can reach, or in host memory.
void submit_pieces(const Tensor& to, const Tensor& from, const CopyPieces& pieces, const Place& place) {
  TensorStorage& target = *TensorAccess::storage(to);
  TensorStorage& source = *TensorAccess::storage(from);
  const auto work = target.work_at(place);
  begin_use(target, *work);
  begin_use(source, *work);
  target.derive_from(source);
  const Block& to_block = target.block();
  const Block& from_block = source.block();
  submit_use(work, {&target, &source}, [&](Stream& stream) {
    for_each_piece(pieces, to.layout(), from.layout(), [&](const CopyPiece& piece) {
      if (!from_block.place().is_device) {
        stream.upload(to_block.device_ptr() + piece.to, from_block.bytes().data() + piece.from, piece.bytes);
      } else if (!to_block.place().is_device) {
        stream.download(to_block.bytes().data() + piece.to, from_block.device_ptr() + piece.from, piece.bytes);
      } else {
        stream.copy(to_block.device_ptr() + piece.to, from_block.device_ptr() + piece.from, piece.bytes);
      }
    });
  });
}

// All bytes from the first to the last element.
Tensor bytes_of(const Tensor& tensor) {
  const ByteRange range = tensor.layout().extent_bytes();
  const auto begin = static_cast<std::int64_t>(range.begin);
  const auto layout = TensorLayout::strided(DType::uint8, {static_cast<std::int64_t>(range.end) - begin}, {1}, begin);
  return TensorAccess::make(TensorAccess::storage(tensor), layout);
}

// Views `bytes` with the type and strides of `other`, from offset 0.
Tensor like_in(const Tensor& bytes, const Tensor& other) {
  const auto layout = TensorLayout::strided(other.dtype(), other.shape(), other.layout().strides());
  return TensorAccess::make(TensorAccess::storage(bytes), layout);
}

// Copies through two buffers in host memory, one filled while the other is emptied; the streams keep the order.
void copy_staged(const Tensor& to, const Tensor& from) {
  const Tensor flat_to = to.reshape({-1});
  const Tensor flat_from = from.reshape({-1});
  const std::int64_t count = from.element_count();
  const std::int64_t step = std::min(count, kStageBytes / static_cast<std::int64_t>(size_of(from.dtype())));
  std::array<Tensor, 2> buffers;
  for (Tensor& buffer : buffers) buffer = empty(to.memory(), from.dtype(), {step});
  for (std::int64_t begin = 0, nth = 0; begin < count; begin += step, ++nth) {
    const std::int64_t end = std::min(count, begin + step);
    const Tensor part = buffers[static_cast<std::size_t>(nth % 2)].slice(0, 0, end - begin);
    part.copy_from(flat_from.slice(0, begin, end));
    flat_to.slice(0, begin, end).copy_from(part);
  }
}

// Opens no device: there are tensors on both.
bool can_reach(const Tensor& to, const Tensor& from) {
  const auto& storage = *TensorAccess::storage(to);
  if (to.place().backend != from.place().backend) return false;
  const Device& device = storage.work_at(to.place())->device();
  return to.place() == from.place() || device.can_copy_directly(storage.work_at(from.place())->device());
}

// Whether there are no gaps between its elements.
bool is_dense(const TensorLayout& layout) {
  const ByteRange range = layout.extent_bytes();
  return range.end - range.begin == layout.bytes();
}

// Requires: at least one of them lies on a device.
void copy_with_device(const Tensor& to, const Tensor& from) {
  const Place to_place = to.place();
  const Place from_place = from.place();
  const CopyPieces pieces = pieces_of(to.layout(), from.layout());
  const bool is_direct = !to_place.is_device || !from_place.is_device || can_reach(to, from);
  if (!is_direct && !(to.layout().is_contiguous() && from.layout().is_contiguous())) {
    const Tensor rows = empty(to.memory(), to.dtype(), to.shape(), to_place);
    copy_staged(rows, from.contiguous());
    to.copy_from(rows);
  } else if (!is_direct) {
    copy_staged(to, from);
  } else if (pieces.count() <= kMostPieces) {
    submit_pieces(to, from, pieces, to_place.is_device ? to_place : from_place);
  } else if (from_place.is_device) {  // fetch all bytes at once, pick the elements on the host
    to.copy_from(like_in(bytes_of(from).to(Place::cpu()), from));
  } else if (is_dense(to.layout())) {
    const Tensor bytes = bytes_of(to);
    const Tensor rows = empty(to.memory(), DType::uint8, bytes.shape());
    like_in(rows, to).copy_from(from);
    bytes.copy_from(rows);
  } else {  // one by one, since bytes in the gaps must not be written
    submit_pieces(to, from, pieces, to_place);
  }
}

}  // namespace

void copy_elements(const Tensor& to, const Tensor& from) {
  if (to.place().is_device || from.place().is_device) {
    copy_with_device(to, from);
  } else {
    copy_on_host(to, from);
  }
}

}  // namespace drover::tensor
