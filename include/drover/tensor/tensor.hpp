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
#include "drover/tensor/dtype.hpp"
#include "drover/tensor/memory.hpp"
#include "drover/tensor/tensor_layout.hpp"

namespace drover::tensor {
class TensorAccess;
class TensorStorage;
}  // namespace drover::tensor

namespace drover {

/// An array in shared memory: type, shape, strides, and a share of a block on the host or a device. A handle: copies
/// and views refer to the same elements, and so does a tensor that was sent to another process (`put` in send.hpp).
///
/// ```
/// #include <drover/drover.hpp>
///
/// int main(int argc, char** argv) {
///   using namespace drover;
///   init(argc, argv);
///   const Session session = Session::start();
///   const Memory memory(session);
///   const Tensor tensor = arange(memory, DType::float32, 0, 6).reshape({2, 3});
///   Queue queue(session);
///   if (put(queue, tensor) != PutResult::put) return 1;  // shares the elements, copies nothing
///   Tensor received;
///   if (get(queue, memory, received) != GetResult::got) return 1;
///   return sum(received.select(0, 1)) == 12.0 ? 0 : 1;
/// }
/// ```
///
/// Work on a device is submitted in the order of the calls and done later; work on the CPU is done on return. Reading
/// elements on the CPU waits for all work in flight on them, in this process or the one they came from. If that
/// process died before its work was done, the reader gets `Errc::peer_lost`, never partial results. Different
/// tensors, even views of the same elements, may be used from different threads; one object by one at a time.
///
/// Only sending orders a write in one process with reads in another: docs/ownership.md.
class Tensor {
 public:
  /// No memory, no elements: uint8[0].
  Tensor() noexcept = default;

  /// Whether it has memory. Without it, most methods throw `Errc::invalid_argument`.
  [[nodiscard]] bool is_open() const noexcept { return storage_ != nullptr; }
  /// Type, shape, strides, and offset in the block.
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

  // Views: other layouts of the same elements. See TensorLayout.

  /// One index of a dimension, which is removed.
  [[nodiscard]] Tensor select(int dim, std::int64_t index) const { return {storage_, layout_.select(dim, index)}; }
  /// Every `step`th index from `begin` up to `end`.
  [[nodiscard]] Tensor slice(int dim, std::int64_t begin, std::int64_t end = kToEnd, std::int64_t step = 1) const {
    return {storage_, layout_.slice(dim, begin, end, step)};
  }
  /// Dimension i becomes what dimension order[i] was.
  [[nodiscard]] Tensor permute(const Dims& order) const { return {storage_, layout_.permute(order)}; }
  /// Swaps two dimensions.
  [[nodiscard]] Tensor transpose(int a, int b) const { return {storage_, layout_.transpose(a, b)}; }
  /// Adds a dimension of size 1 before `dim`.
  [[nodiscard]] Tensor unsqueeze(int dim) const { return {storage_, layout_.unsqueeze(dim)}; }
  /// Removes a dimension of size 1.
  [[nodiscard]] Tensor squeeze(int dim) const { return {storage_, layout_.squeeze(dim)}; }
  /// Repeats dimensions of size 1.
  [[nodiscard]] Tensor expand(const Dims& shape) const { return {storage_, layout_.expand(shape)}; }
  /// Parts along a dimension, whose sizes differ by at most one.
  [[nodiscard]] std::vector<Tensor> split(int parts, int dim = 0) const;
  /// The same elements in another shape: a view if strides can express it, otherwise of a copy.
  [[nodiscard]] Tensor reshape(const Dims& shape) const;

  /// The same elements in row-major order: this tensor if it is contiguous, otherwise a copy.
  [[nodiscard]] Tensor contiguous() const;
  /// A contiguous copy at the same place.
  [[nodiscard]] Tensor copy() const;
  /// This tensor if it lies there, otherwise a copy; do not change the elements until that is ready. Devices copy
  /// directly where they can, otherwise piece by piece through host memory.
  [[nodiscard]] Tensor to(const Place& place) const;
  /// Copies the elements of `source` here, wherever it lies. Throws `Errc::invalid_argument` if type or shape differ.
  /// Requires: the two do not overlap.
  void copy_from(const Tensor& source) const;
  /// Sets all elements to one number.
  void fill(const Scalar& number) const;

  /// The elements in host memory, once they are ready. Throws `Errc::invalid_argument` if the type differs, the
  /// tensor is not contiguous, or it lies on a device.
  template <TensorElement Element>
  [[nodiscard]] std::span<Element> elements(Deadline deadline = Deadline::never()) const {
    const auto bytes = element_bytes(dtype_of<Element>(), deadline);
    return {reinterpret_cast<Element*>(bytes.data()), bytes.size() / sizeof(Element)};
  }
  /// The same as bytes, for any type, e.g. for `serialize` and `write_npy`. Their layout is
  /// TensorLayout::contiguous(dtype(), shape()).
  [[nodiscard]] std::span<std::byte> element_bytes(Deadline deadline = Deadline::never()) const;
  /// The only element, from any place, once it is ready. Throws `Errc::invalid_argument` if there is not exactly one,
  /// or the type differs.
  template <TensorElement Element>
  [[nodiscard]] Element item() const {
    Element element{};
    item(dtype_of<Element>(), std::as_writable_bytes(std::span(&element, 1)));
    return element;
  }
  /// The address of the first element on its device, for work between `begin_use` and `end_use`. Throws
  /// `Errc::invalid_argument` for host memory.
  [[nodiscard]] DevicePtr device_ptr() const;

  /// Orders later work of `stream` after all work in flight on the elements; waits for that work instead if the
  /// stream captures a graph. Throws `Errc::peer_lost` if the elements are known to be lost, `Errc::invalid_argument`
  /// for host memory. Requires: a stream of the device where they lie; this tensor lives until `end_use`.
  void begin_use(Stream& stream) const;
  /// Orders later work of drover on the elements, and their release, after everything that `stream` was given so far.
  /// `made_from` are the tensors from which `stream` computed these elements: if those prove to be lost, so are
  /// these. Throws `Errc::invalid_argument` if the stream captures a graph: a graph may be launched at any time, so
  /// its owner must keep the tensor alive.
  void end_use(Stream& stream, std::initializer_list<Tensor> made_from = {}) const;
  /// Waits until no work on the elements is in flight. Throws `Errc::peer_lost` if they are lost,
  /// `Errc::device_fault` if the device failed, and `Errc::timed_out`.
  void synchronize(Deadline deadline = Deadline::never()) const;
  /// Whether `synchronize` would not wait. Throws as it does.
  [[nodiscard]] bool is_ready() const;

 private:
  friend class tensor::TensorAccess;
  Tensor(std::shared_ptr<tensor::TensorStorage> storage, const TensorLayout& layout) noexcept
      : storage_(std::move(storage)), layout_(layout) {}
  // Both require that the tensor has this type.
  [[nodiscard]] std::span<std::byte> element_bytes(DType dtype, Deadline deadline) const;
  void item(DType dtype, std::span<std::byte> element) const;

  std::shared_ptr<tensor::TensorStorage> storage_;  // shared: by all views
  TensorLayout layout_;
};

/// `Tensor::begin_use` for many tensors at one place, by one wait of the stream.
void begin_use(std::span<const Tensor> tensors, Stream& stream);

/// An uninitialized tensor.
[[nodiscard]] Tensor empty(const Memory& memory, DType dtype, const Dims& shape, const Place& place = Place::cpu());
/// All elements 0.
[[nodiscard]] Tensor zeros(const Memory& memory, DType dtype, const Dims& shape, const Place& place = Place::cpu());
/// All elements one number.
[[nodiscard]] Tensor full(const Memory& memory, DType dtype, const Dims& shape, const Scalar& number,
                          const Place& place = Place::cpu());
/// begin, begin + 1, ... up to but excluding `end`. Throws `Errc::invalid_argument` if the type cannot represent all
/// of them exactly.
[[nodiscard]] Tensor arange(const Memory& memory, DType dtype, std::int64_t begin, std::int64_t end,
                            const Place& place = Place::cpu());
/// Random elements, the same for the same seed on every machine: in [0, 1) for real types and each part of complex
/// ones, any value for integers.
[[nodiscard]] Tensor random(const Memory& memory, DType dtype, const Dims& shape, std::uint64_t seed,
                            const Place& place = Place::cpu());
/// A copy of bytes in host memory that have this layout. Throws `Errc::invalid_argument` if the layout exceeds them.
[[nodiscard]] Tensor from_bytes(const Memory& memory, const TensorLayout& layout, std::span<const std::byte> bytes,
                                const Place& place = Place::cpu());
/// A one-dimensional copy of numbers.
template <TensorElement Element>
[[nodiscard]] Tensor from_values(const Memory& memory, std::span<const Element> values,
                                 const Place& place = Place::cpu()) {
  const auto layout = TensorLayout::contiguous(dtype_of<Element>(), {static_cast<std::int64_t>(values.size())});
  return from_bytes(memory, layout, std::as_bytes(values), place);
}

/// The sum of all elements, on the host, to which this and the functions below copy elements of devices. Integers are
/// summed modulo 2^64. Throws `Errc::unsupported` for complex types.
[[nodiscard]] double sum(const Tensor& tensor);
/// The elementwise sum, at the place of `one`. Integers wrap. Throws `Errc::invalid_argument` if types or shapes
/// differ.
[[nodiscard]] Tensor add(const Tensor& one, const Tensor& other);
/// Every element times a number, which is converted to the tensor's type first.
[[nodiscard]] Tensor scale(const Tensor& tensor, const Scalar& factor);
/// Same type, shape and elements, at any places; nan equals nothing.
[[nodiscard]] bool equal(const Tensor& one, const Tensor& other);
/// Same type and shape, and no element differs by more than `absolute` + `relative` * |other|.
[[nodiscard]] bool all_close(const Tensor& one, const Tensor& other, double relative = 1e-5, double absolute = 1e-8);
/// Like `format_tensor`, with the place. Of large tensors on devices only the shown elements are fetched.
[[nodiscard]] std::string to_string(const Tensor& tensor, const TensorTextOptions& options = {});

}  // namespace drover
