// Tensors as text, wherever they lie.
#include <fmt/format.h>

#include "tensor/layout/tensor_text_parts.hpp"
#include "tensor/tensor_access.hpp"

namespace drover {
namespace {

// Up to here the whole tensor is fetched, which is one copy.
constexpr std::int64_t kFewElements = 65'536;

}  // namespace

std::string to_string(const Tensor& tensor, const TensorTextOptions& options) {
  if (!tensor.is_open()) return "[]\n" + to_string(tensor.layout()) + " without memory";
  const std::string end = fmt::format(" at {}", to_string(tensor.place()));
  if (!tensor.place().is_device || tensor.element_count() <= kFewElements) {
    const Tensor host = tensor.to(Place::cpu());
    host.synchronize();
    return format_tensor(host.layout(), TensorAccess::storage(host)->block().bytes(), options) + end;
  }
  tensor.synchronize();
  TensorStorage& storage = *TensorAccess::storage(tensor);
  Device& device = storage.work_at(storage.place())->device();
  const std::size_t size = size_of(tensor.dtype());
  const auto fetch = [&](std::int64_t place, std::byte* to) {
    device.download(to, storage.block().device_ptr() + static_cast<std::size_t>(place) * size, size);
  };
  return detail::format_fetched(tensor.layout(), fetch, options) + end;
}

}  // namespace drover
