// drover/tensor/tensor.hpp: arrays in shared memory, of the host and of devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "drover/device/stream.hpp"
#include "drover/tensor/memory.hpp"
#include "drover/tensor/place.hpp"
#include "drover/tensor/scalar.hpp"
#include "drover/tensor/tensor_layout.hpp"
#include "drover/tensor/tensor_text.hpp"

namespace drover {

class TensorStorage;

/// An array in shared memory: type, shape, strides, and a share of a block, at the host or on a device. A handle:
/// copies and views refer to the same elements. Sent to another process (`put` in send.hpp) it is not copied either.
///
/// What happens on a device is submitted and done later, in the order of the calls; on the CPU it is done on return.
/// Whoever reads elements on the CPU waits for what goes on with them, in this process or in the one they came from;
/// if that one died before, it gets `Errc::peer_lost` and never what is half done. Different tensors may be used from
/// different threads, also views of the same elements; one Tensor belongs to one thread at a time.
///
/// Nothing orders a write in one process with reads in another but sending: docs/ownership.md.
class Tensor {
 public:
  /// No memory, no elements: uint8[0].
  Tensor() noexcept = default;

  /// Whether it has memory. Without, most of what follows is `Errc::invalid_argument`.
  [[nodiscard]] bool is_open() const noexcept { return storage_ != nullptr; }
  /// Type, shape and strides, and where they begin in the block.
  [[nodiscard]] const TensorLayout& layout() const noexcept { return layout_; }
  /// The type of its elements.
  [[nodiscard]] DType dtype() const noexcept { return layout_.dtype(); }
  /// The size of each dimension; valid as long as this is.
  [[nodiscard]] std::span<const std::int64_t> shape() const noexcept { return layout_.shape(); }
  /// How many elements.
  [[nodiscard]] std::int64_t element_count() const noexcept { return layout_.element_count(); }
  /// Bytes of all elements.
  [[nodiscard]] std::size_t bytes() const noexcept { return layout_.bytes(); }
  /// Where it lies.
  [[nodiscard]] Place place() const;
  /// The memory it was made in.
  [[nodiscard]] Memory memory() const;

  // Views are other layouts of the same elements; TensorLayout says more.

  /// One index of a dimension, which goes away.
  [[nodiscard]] Tensor select(int dim, std::int64_t index) const { return view(layout_.select(dim, index)); }
  /// Every `step`th index from `begin` to before `end`.
  [[nodiscard]] Tensor slice(int dim, std::int64_t begin, std::int64_t end = kToEnd, std::int64_t step = 1) const {
    return view(layout_.slice(dim, begin, end, step));
  }
  /// Dimension i becomes what dimension order[i] was.
  [[nodiscard]] Tensor permute(const Dims& order) const { return view(layout_.permute(order)); }
  /// Two dimensions change places.
  [[nodiscard]] Tensor transpose(int a, int b) const { return view(layout_.transpose(a, b)); }
  /// With a new dimension of size 1 before `dim`.
  [[nodiscard]] Tensor unsqueeze(int dim) const { return view(layout_.unsqueeze(dim)); }
  /// Without a dimension of size 1.
  [[nodiscard]] Tensor squeeze(int dim) const { return view(layout_.squeeze(dim)); }
  /// Dimensions of size 1 are repeated.
  [[nodiscard]] Tensor expand(const Dims& shape) const { return view(layout_.expand(shape)); }
  /// Parts along a dimension, whose sizes differ by one at most.
  [[nodiscard]] std::vector<Tensor> split(int parts, int dim = 0) const;
  /// The same elements in another shape: a view where strides can say it, else of a copy.
  [[nodiscard]] Tensor reshape(const Dims& shape) const;

  /// The same elements row after row: this one if they lie so, else a copy.
  [[nodiscard]] Tensor contiguous() const;
  /// A copy at the same place, row after row.
  [[nodiscard]] Tensor copy() const;
  /// This one if it lies there, else a copy: leave the elements as they are until that is ready. Between devices
  /// directly where they can, else through host memory, piece by piece.
  [[nodiscard]] Tensor to(const Place& place) const;
  /// Copies the elements of `source` here, from wherever it lies. Throws `Errc::invalid_argument` where type or shape
  /// differ. Requires: the two do not overlap.
  void copy_from(const Tensor& source) const;
  /// Sets all elements to one number.
  void fill(const Scalar& number) const;

  /// The elements, in host memory, once they are ready. Throws `Errc::invalid_argument` if the type is another, they
  /// do not lie row after row, or lie on a device.
  template <TensorElement Element>
  [[nodiscard]] std::span<Element> elements(Deadline deadline = Deadline::never()) const {
    check_dtype(dtype_of<Element>());
    const auto bytes = element_bytes(deadline);
    return {reinterpret_cast<Element*>(bytes.data()), bytes.size() / sizeof(Element)};
  }
  /// The same as bytes, whatever their type, e.g. for `serialize` and `write_npy`. Their layout is
  /// TensorLayout::contiguous(dtype(), shape()).
  [[nodiscard]] std::span<std::byte> element_bytes(Deadline deadline = Deadline::never()) const;
  /// The only element, from wherever it lies, once it is ready. Throws `Errc::invalid_argument` if there are more, or
  /// the type is another.
  template <TensorElement Element>
  [[nodiscard]] Element item() const {
    Element element{};
    read_item(dtype_of<Element>(), std::as_writable_bytes(std::span(&element, 1)));
    return element;
  }
  /// The address of the first element on its device, for work between `begin_use` and `end_use`. Throws
  /// `Errc::invalid_argument` for host memory.
  [[nodiscard]] DevicePtr device_ptr() const;

  /// What `stream` does from now on comes after all that goes on with the elements. Throws `Errc::peer_lost` if they
  /// are known to be lost, `Errc::invalid_argument` for host memory. Requires: a stream of the device where they lie;
  /// this tensor lives until `end_use`. If the stream captures a graph, this waits until the elements are there.
  void begin_use(Stream& stream) const;
  /// What drover does with the elements from now on comes after all that `stream` was given; they stay that long.
  /// `made_from` are the tensors of which `stream` made these elements: if those prove to be lost, so are these.
  /// Throws `Errc::invalid_argument` if the stream captures a graph, which may be launched at any time and any number
  /// of times: who has the graph sees to it that the tensor lives as long.
  void end_use(Stream& stream, std::initializer_list<Tensor> made_from = {}) const;
  /// Waits until nothing goes on with the elements. Throws `Errc::peer_lost` if they are lost, `Errc::device_fault`
  /// if the device failed, and `Errc::timed_out`.
  void synchronize(Deadline deadline = Deadline::never()) const;
  /// Whether `synchronize` would not wait. Throws as it does.
  [[nodiscard]] bool is_ready() const;

 private:
  friend class TensorAccess;
  Tensor(std::shared_ptr<TensorStorage> storage, const TensorLayout& layout) noexcept
      : storage_(std::move(storage)), layout_(layout) {}
  [[nodiscard]] Tensor view(const TensorLayout& layout) const { return {storage_, layout}; }
  void check_dtype(DType dtype) const;
  void read_item(DType dtype, std::span<std::byte> element) const;

  std::shared_ptr<TensorStorage> storage_;  // shared: by all views
  TensorLayout layout_;
};

/// New memory; its contents are what others left there.
[[nodiscard]] Tensor empty(const Memory& memory, DType dtype, const Dims& shape, const Place& place = Place::cpu());
/// All elements 0.
[[nodiscard]] Tensor zeros(const Memory& memory, DType dtype, const Dims& shape, const Place& place = Place::cpu());
/// All elements one number.
[[nodiscard]] Tensor full(const Memory& memory, DType dtype, const Dims& shape, const Scalar& number,
                          const Place& place = Place::cpu());
/// begin, begin + 1, ... up to before `end`. Throws `Errc::invalid_argument` for more than the type can count.
[[nodiscard]] Tensor arange(const Memory& memory, DType dtype, std::int64_t begin, std::int64_t end,
                            const Place& place = Place::cpu());
/// Random elements, the same for the same seed everywhere: 0 up to before 1 for real types and each part of complex
/// ones, any value for whole types.
[[nodiscard]] Tensor random(const Memory& memory, DType dtype, const Dims& shape, std::uint64_t seed,
                            const Place& place = Place::cpu());
/// A copy of bytes in host memory that have this layout. Throws `Errc::invalid_argument` if it reaches outside.
[[nodiscard]] Tensor from_bytes(const Memory& memory, const TensorLayout& layout, std::span<const std::byte> bytes,
                                const Place& place = Place::cpu());
/// A copy of numbers, in one dimension.
template <TensorElement Element>
[[nodiscard]] Tensor from_values(const Memory& memory, std::span<const Element> values,
                                 const Place& place = Place::cpu()) {
  const auto layout = TensorLayout::contiguous(dtype_of<Element>(), {static_cast<std::int64_t>(values.size())});
  return from_bytes(memory, layout, std::as_bytes(values), place);
}

/// The sum of all elements; of whole types modulo 2^64, then as a double. Complex types are `Errc::unsupported`.
/// Of a device's tensor the elements are brought to the host first, as in all functions below.
[[nodiscard]] double sum(const Tensor& tensor);
/// Element by element, at the place of the first. Whole numbers wrap. Throws `Errc::invalid_argument` where type or
/// shape differ.
[[nodiscard]] Tensor add(const Tensor& one, const Tensor& other);
/// Every element times a number, which is stored as the tensor's type first.
[[nodiscard]] Tensor scale(const Tensor& tensor, const Scalar& factor);
/// Same type, shape and elements; nan equals nothing. Wherever they lie.
[[nodiscard]] bool equal(const Tensor& one, const Tensor& other);
/// Same type and shape, and no element differs by more than `absolute` + `relative` * |other|.
[[nodiscard]] bool all_close(const Tensor& one, const Tensor& other, double relative = 1e-5, double absolute = 1e-8);
/// As `format_tensor` writes it, and where it lies. Of a device's tensor only what is shown is fetched, if that is
/// little.
[[nodiscard]] std::string to_string(const Tensor& tensor, const TensorTextOptions& options = {});

}  // namespace drover
