#include "drover/tensor/tensor.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tensor/tensor_access.hpp"

namespace drover {
namespace {

[[noreturn]] void throw_timed_out() {
  throw Error(Errc::timed_out, "the elements of a tensor were not ready in time",
              "give a later deadline, or look whether the process that makes them is stuck");
}

}  // namespace

Place Tensor::place() const { return TensorAccess::storage(*this)->place(); }

Memory Tensor::memory() const { return TensorAccess::storage(*this)->memory(); }

std::vector<Tensor> Tensor::split(int parts, int dim) const {
  std::vector<Tensor> tensors;
  for (const auto& layout : layout_.split(parts, dim)) tensors.push_back(view(layout));
  return tensors;
}

Tensor Tensor::reshape(const Dims& shape) const {
  try {
    return view(layout_.reshape(shape));
  } catch (const Error& error) {
    if (layout_.is_contiguous() || storage_ == nullptr) throw;
  }
  // Throws before anything is copied if the shape cannot be.
  const auto reshaped = TensorLayout::contiguous(dtype(), this->shape()).reshape(shape);
  return copy().view(reshaped);
}

Tensor Tensor::contiguous() const { return layout_.is_contiguous() ? *this : copy(); }

Tensor Tensor::copy() const {
  const auto& storage = TensorAccess::storage(*this);
  const auto layout = TensorLayout::contiguous(dtype(), shape());
  Tensor made = TensorAccess::make_like(storage->memory(), layout, storage->place());
  made.copy_from(*this);
  return made;
}

Tensor Tensor::to(const Place& place) const {
  const auto& storage = TensorAccess::storage(*this);
  if (storage->place() == place) return *this;
  Tensor made = TensorAccess::make_like(storage->memory(), TensorLayout::contiguous(dtype(), shape()), place);
  made.copy_from(*this);
  return made;
}

void Tensor::check_dtype(DType dtype) const {
  if (dtype == this->dtype()) return;
  throw Error(Errc::invalid_argument,
              fmt::format("elements of type {} were asked for, and the tensor is {}", drover::to_string(dtype),
                          drover::to_string(layout_)),
              "ask for the type that the tensor has");
}

std::span<std::byte> Tensor::element_bytes(Deadline deadline) const {
  const auto& storage = TensorAccess::storage(*this);
  if (!layout_.is_contiguous()) {
    throw Error(Errc::invalid_argument,
                fmt::format("the elements of {} do not lie one after the other", drover::to_string(layout_)),
                "ask for those of contiguous()");
  }
  if (storage->place().is_device) {
    throw Error(Errc::invalid_argument, fmt::format("the tensor lies at {}", drover::to_string(storage->place())),
                "copy it with to(Place::cpu()), or use device_ptr()");
  }
  synchronize(deadline);
  return storage->block().bytes().subspan(layout_.extent_bytes().begin, bytes());
}

void Tensor::read_item(DType dtype, std::span<std::byte> element) const {
  const auto& storage = TensorAccess::storage(*this);
  if (element_count() != 1 || dtype != this->dtype()) {
    throw Error(Errc::invalid_argument,
                fmt::format("one element of type {} was asked for, and the tensor is {}", drover::to_string(dtype),
                            drover::to_string(layout_)),
                "select one element first, and ask for the type that it has");
  }
  synchronize();
  const std::size_t begin = layout_.extent_bytes().begin;
  if (!storage->place().is_device) {
    std::ranges::copy(storage->block().bytes().subspan(begin, element.size()), element.begin());
    return;
  }
  Device& device = storage->work_at(storage->place())->device();
  device.download(element.data(), storage->block().device_ptr() + begin, element.size());
}

DevicePtr Tensor::device_ptr() const {
  return TensorAccess::storage(*this)->block().device_ptr() + layout_.extent_bytes().begin;
}

void Tensor::begin_use(Stream& stream) const {
  const auto& storage = TensorAccess::storage(*this);
  const auto work = storage->work_at(storage->place());
  // Nothing to wait for, which takes the stream longer than to look here; also not for others of the same block.
  if (storage->is_ready() && work->is_idle()) return;
  if (stream.is_capturing()) return synchronize();  // a graph can wait for nothing that is not in it
  storage->begin_use(*work);
  work->lead(stream);
}

void Tensor::end_use(Stream& stream, std::initializer_list<Tensor> made_from) const {
  require(
      !stream.is_capturing(), "a tensor was used, or sent, on a stream that captures a graph",
      "send and let go of tensors before or after the capture; those that the graph uses live as long as it does");
  const auto& storage = TensorAccess::storage(*this);
  for (const Tensor& source : made_from) storage->derive_from(*TensorAccess::storage(source));
  const auto work = storage->work_at(storage->place());
  try {
    storage->end_use({.work = work, .ticket = work->follow(stream)});
  } catch (...) {  // half of it may have been submitted
    storage->end_use({.work = work, .ticket = work->latest()});
    throw;
  }
}

void Tensor::synchronize(Deadline deadline) const {
  if (TensorAccess::storage(*this)->wait(deadline) == WaitResult::timed_out) throw_timed_out();
}

bool Tensor::is_ready() const { return TensorAccess::storage(*this)->is_ready(); }

}  // namespace drover
