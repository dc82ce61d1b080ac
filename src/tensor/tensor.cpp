#include "drover/tensor/tensor.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "tensor/layout/copy_strided.hpp"
#include "tensor/layout/tensor_text.hpp"
#include "tensor/tensor_access.hpp"

namespace drover {
namespace {

[[noreturn]] void throw_timed_out() {
  throw Error(Errc::timed_out, "a tensor was not ready before the deadline",
              "extend the deadline, or check that the process that computes the tensor is not stuck");
}

constexpr std::size_t kLargestElement = 16;
// Device tensors up to this size are downloaded whole to be shown, in one copy.
constexpr std::int64_t kFewElements = 65'536;

bool is_one_byte(std::span<const std::byte> element) {
  return std::ranges::all_of(element, [&](std::byte each) { return each == element[0]; });
}

void fill_on_device(const Tensor& tensor, std::byte value) {
  tensor::TensorStorage& storage = *tensor::TensorAccess::storage(tensor);
  const auto work = storage.work_at(storage.place());
  storage.begin_use(*work);
  tensor::submit_use(work, {&storage}, [&](Stream& stream) {
    stream.fill(tensor.device_ptr(), std::to_integer<std::uint8_t>(value), tensor.bytes());
  });
}

}  // namespace

Place Tensor::place() const { return tensor::TensorAccess::storage(*this)->place(); }

Memory Tensor::memory() const { return tensor::TensorAccess::storage(*this)->memory(); }

std::vector<Tensor> Tensor::split(int parts, int dim) const {
  std::vector<Tensor> tensors;
  for (const auto& layout : layout_.split(parts, dim)) tensors.push_back({storage_, layout});
  return tensors;
}

Tensor Tensor::reshape(const Dims& shape) const {
  try {
    return {storage_, layout_.reshape(shape)};
  } catch (const Error& error) {
    if (layout_.is_contiguous() || storage_ == nullptr) throw;
  }
  // Throws before anything is copied if the shape is impossible.
  const auto reshaped = TensorLayout::contiguous(dtype(), this->shape()).reshape(shape);
  return {copy().storage_, reshaped};
}

Tensor Tensor::contiguous() const { return layout_.is_contiguous() ? *this : copy(); }

Tensor Tensor::copy() const {
  const auto& storage = tensor::TensorAccess::storage(*this);
  const auto layout = TensorLayout::contiguous(dtype(), shape());
  Tensor made = tensor::TensorAccess::make_like(storage->memory(), layout, storage->place());
  made.copy_from(*this);
  return made;
}

Tensor Tensor::to(const Place& place) const {
  const auto& storage = tensor::TensorAccess::storage(*this);
  if (storage->place() == place) return *this;
  Tensor made = tensor::TensorAccess::make_like(storage->memory(), TensorLayout::contiguous(dtype(), shape()), place);
  made.copy_from(*this);
  return made;
}

std::span<std::byte> Tensor::element_bytes(Deadline deadline) const {
  const auto& storage = tensor::TensorAccess::storage(*this);
  if (!layout_.is_contiguous()) {
    throw Error(Errc::invalid_argument, fmt::format("{} is not contiguous", drover::to_string(layout_)),
                "use the elements of contiguous()");
  }
  if (storage->place().is_device) {
    throw Error(Errc::invalid_argument,
                fmt::format("the CPU cannot access a tensor at {}", drover::to_string(storage->place())),
                "copy it with to(Place::cpu()), or use device_ptr()");
  }
  synchronize(deadline);
  return storage->block().bytes().subspan(layout_.extent_bytes().begin, bytes());
}

std::span<std::byte> Tensor::element_bytes(DType dtype, Deadline deadline) const {
  if (dtype == this->dtype()) return element_bytes(deadline);
  throw Error(
      Errc::invalid_argument,
      fmt::format("cannot access {} as elements of type {}", drover::to_string(layout_), drover::to_string(dtype)),
      "use the type of the tensor");
}

void Tensor::item(DType dtype, std::span<std::byte> element) const {
  const auto& storage = tensor::TensorAccess::storage(*this);
  if (element_count() != 1 || dtype != this->dtype()) {
    throw Error(Errc::invalid_argument,
                fmt::format("{} is not one element of type {}", drover::to_string(layout_), drover::to_string(dtype)),
                "select one element first, and use the type of the tensor");
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
  return tensor::TensorAccess::storage(*this)->block().device_ptr() + layout_.extent_bytes().begin;
}

void tensor::require_not_capturing(const Stream& stream) {
  require(!stream.is_capturing(), "cannot track a use of a tensor, or send it, on a stream that captures a graph",
          "send and release tensors before or after the capture, and keep those that the graph uses alive with it");
}

void Tensor::begin_use(Stream& stream) const { drover::begin_use({this, 1}, stream); }

// Queries avoid a wait on the stream, which costs more. The work may use other tensors of the same blocks.
void begin_use(std::span<const Tensor> tensors, Stream& stream) {
  if (tensors.empty()) return;
  const auto work = tensor::TensorAccess::storage(tensors.front())->work_at(tensors.front().place());
  const auto is_ready = [](const Tensor& tensor) { return tensor::TensorAccess::storage(tensor)->is_ready(); };
  if (std::ranges::all_of(tensors, is_ready) && work->is_idle()) return;
  const bool is_capturing = stream.is_capturing();
  for (const Tensor& tensor : tensors) {
    if (is_capturing) {  // a graph cannot wait for work outside it
      tensor.synchronize();
    } else {
      tensor::TensorAccess::storage(tensor)->begin_use(*work);
    }
  }
  if (!is_capturing) work->lead(stream);
}

void Tensor::end_use(Stream& stream, std::initializer_list<Tensor> made_from) const {
  tensor::require_not_capturing(stream);
  const auto& storage = tensor::TensorAccess::storage(*this);
  for (const Tensor& source : made_from) storage->derive_from(*tensor::TensorAccess::storage(source));
  const auto work = storage->work_at(storage->place());
  try {
    storage->end_use({.work = work, .ticket = work->follow(stream)});
  } catch (...) {  // part of it may have been submitted
    storage->end_use({.work = work, .ticket = work->latest()});
    throw;
  }
}

void Tensor::synchronize(Deadline deadline) const {
  if (tensor::TensorAccess::storage(*this)->wait(deadline) == WaitResult::timed_out) throw_timed_out();
}

bool Tensor::is_ready() const { return tensor::TensorAccess::storage(*this)->is_ready(); }

void Tensor::copy_from(const Tensor& source) const {
  static_cast<void>(tensor::TensorAccess::storage(*this));
  static_cast<void>(tensor::TensorAccess::storage(source));
  tensor::check_copy(layout_, source.layout_);
  if (element_count() > 0) tensor::copy_elements(*this, source);
}

// On the host, a stride of 0 repeats the number.
void Tensor::fill(const Scalar& number) const {
  const auto& storage = tensor::TensorAccess::storage(*this);
  std::array<std::byte, kLargestElement> memory{};
  const auto element = std::span(memory).first(size_of(dtype()));
  number.store(dtype(), element);
  if (element_count() == 0) return;
  if (storage->place().is_device && layout_.is_contiguous() && is_one_byte(element)) {
    return fill_on_device(*this, element[0]);
  }
  const auto one = TensorLayout::contiguous(dtype(), {});
  if (storage->place().is_device) {
    const Tensor rows =
        tensor::TensorAccess::make_like(storage->memory(), TensorLayout::contiguous(dtype(), shape()), Place::cpu());
    rows.fill(number);
    return copy_from(rows);
  }
  synchronize();
  copy_strided(storage->block().bytes(), layout_, element, one.expand(shape()));
}

std::string to_string(const Tensor& tensor, const TensorTextOptions& options) {
  if (!tensor.is_open()) return "[]\n" + to_string(tensor.layout()) + " without memory";
  const std::string end = fmt::format(" at {}", to_string(tensor.place()));
  if (!tensor.place().is_device || tensor.element_count() <= kFewElements) {
    const Tensor host = tensor.to(Place::cpu());
    host.synchronize();
    return format_tensor(host.layout(), tensor::TensorAccess::storage(host)->block().bytes(), options) + end;
  }
  tensor.synchronize();
  tensor::TensorStorage& storage = *tensor::TensorAccess::storage(tensor);
  Device& device = storage.work_at(storage.place())->device();
  const std::size_t size = size_of(tensor.dtype());
  const auto fetch = [&](std::int64_t place, std::byte* to) {
    device.download(to, storage.block().device_ptr() + static_cast<std::size_t>(place) * size, size);
  };
  return tensor::format_fetched(tensor.layout(), fetch, options) + end;
}

}  // namespace drover
