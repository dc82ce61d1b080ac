#include "drover/tensor/dlpack.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "tensor/exchange/dlpack_types.hpp"

namespace drover {
namespace {

using dlpack::DLManagedTensor;
using dlpack::DLManagedTensorVersioned;
using dlpack::DLTensor;

static_assert(sizeof(void*) == 8, "offsets below are those of 64-bit machines");
static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, ndim) == 16 && offsetof(DLTensor, dtype) == 20 &&
              offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, deleter) == 56);
static_assert(sizeof(DLManagedTensorVersioned) == 80 && offsetof(DLManagedTensorVersioned, deleter) == 16 &&
              offsetof(DLManagedTensorVersioned, dl_tensor) == 32);

constexpr const char* kProducer = "report it to the library that made the array";

[[noreturn]] void throw_unsupported(const std::string& what, const std::string& remedy) {
  throw Error(Errc::unsupported, "a DLPack array " + what, remedy);
}
[[noreturn]] void throw_corrupt(const std::string& what) {
  throw Error(Errc::corrupt, "a DLPack array " + what, kProducer);
}

// All that another library reads, and what keeps the memory alive. Needs nothing that ends with `main`.
template <class Managed>
struct Exported {
  Managed managed{};  // NOLINT(bugprone-invalid-enum-default-initialization): filled before anybody sees it
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};
  std::shared_ptr<void> keeper;  // shared: the exporter may go on using the memory
};

// The first element is at `data` itself: some libraries overlook `byte_offset`.
template <class Managed>
Managed* export_as(const DlpackArray& array) {
  const auto& layout = array.layout;
  require(layout.is_valid(), "an array that is exported has a layout that is not valid", "make it by TensorLayout");
  const bool is_empty = layout.element_count() == 0;
  require(is_empty || array.base.address != 0, "an array that is exported has elements, and no memory",
          "set DlpackArray::base");
  auto owned = std::make_unique<Exported<Managed>>();
  std::ranges::copy(layout.shape(), owned->shape.begin());
  std::ranges::copy(layout.strides(), owned->strides.begin());
  owned->keeper = array.keeper;
  const auto first = array.base + static_cast<std::uint64_t>(layout.offset()) * size_of(layout.dtype());
  owned->managed.dl_tensor = {
      .data = is_empty ? nullptr : reinterpret_cast<void*>(first.address),  // NOLINT(performance-no-int-to-ptr)
      .device = to_dlpack(array.place),
      .ndim = layout.rank(),
      .dtype = detail::dlpack_type(layout.dtype()),
      .shape = owned->shape.data(),
      .strides = owned->strides.data(),
      .byte_offset = 0};
  owned->managed.manager_ctx = owned.get();
  owned->managed.deleter = [](Managed* self) { delete static_cast<Exported<Managed>*>(self->manager_ctx); };
  return &owned.release()->managed;
}

// Nobody steps along a dimension with one index, and libraries leave any stride there, such as that of a reversed
// one.
Dims strides_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  std::vector<std::int64_t> result(strides.begin(), strides.end());
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (result[i] >= 0) continue;
    if (shape[i] != 1) throw_unsupported("has a negative stride", "copy it first, in the order of its rows");
    result[i] = 1;
  }
  return result;
}

TensorLayout layout_of(const DLTensor& tensor) {
  const DType dtype = detail::dtype_from(tensor.dtype);
  if (tensor.ndim < 0) throw_corrupt(fmt::format("has {} dimensions", tensor.ndim));
  if (tensor.ndim > kMaxRank) {
    throw_unsupported(fmt::format("has {} dimensions, and a tensor {} at most", tensor.ndim, kMaxRank),
                      "join dimensions first: reshape");
  }
  const auto rank = static_cast<std::size_t>(tensor.ndim);
  if (rank > 0 && tensor.shape == nullptr) throw_corrupt("has dimensions without sizes");
  const std::span<const std::int64_t> shape(tensor.shape, rank);
  if (std::ranges::any_of(shape, [](auto size) { return size < 0; })) throw_corrupt("has a negative size");
  if (tensor.byte_offset % size_of(dtype) != 0) {
    throw_unsupported(fmt::format("begins {} bytes from its memory, which is no multiple of {}, the size of {}",
                                  tensor.byte_offset, size_of(dtype), to_string(dtype)),
                      "copy it first");
  }
  const bool is_empty = std::ranges::find(shape, 0) != shape.end();
  const bool is_contiguous = tensor.strides == nullptr || is_empty;
  const Dims strides = is_contiguous ? Dims() : strides_of(shape, {tensor.strides, rank});
  try {
    if (is_contiguous) return TensorLayout::contiguous(dtype, shape);
    return TensorLayout::strided(dtype, shape, strides);
  } catch (const Error& error) {
    throw_corrupt("cannot be as large as it says: " + error.message());
  }
}

DlpackArray array_of(const DLTensor& tensor) {
  DlpackArray array{.layout = layout_of(tensor), .place = from_dlpack(tensor.device)};
  const bool is_empty = array.layout.element_count() == 0;
  if (tensor.data == nullptr && !is_empty) throw_corrupt("has elements, and no memory");
  array.base = {.address = reinterpret_cast<std::uintptr_t>(tensor.data)};
  if (tensor.data != nullptr) array.base = array.base + tensor.byte_offset;
  return array;
}

template <class Managed>
std::shared_ptr<void> owner_of(Managed* managed) {
  require(managed != nullptr, "there is no DLPack array to import", "pass the pointer that the capsule holds");
  return std::shared_ptr<Managed>(managed, [](Managed* self) {
    if (self->deleter != nullptr) self->deleter(self);
  });
}

}  // namespace

std::byte* DlpackArray::host() const {
  require(!place.is_device || place.backend == BackendKind::host, "memory of a GPU has no address on the host",
          "copy it to host memory first");
  return reinterpret_cast<std::byte*>(base.address);  // NOLINT(performance-no-int-to-ptr)
}

dlpack::DLDevice to_dlpack(const Place& place) {
  if (!place.is_device || place.backend == BackendKind::host) return {.device_type = dlpack::kDLCPU, .device_id = 0};
  return {.device_type = dlpack::kDLCUDA, .device_id = place.index};
}

Place from_dlpack(const dlpack::DLDevice& device) {
  switch (static_cast<std::int32_t>(device.device_type)) {
    case dlpack::kDLCPU:
    case dlpack::kDLCUDAHost: return Place::cpu();
    case dlpack::kDLCUDA:
    case dlpack::kDLCUDAManaged: break;
    default:
      throw_unsupported(fmt::format("lies on a device of type {}", static_cast<std::int32_t>(device.device_type)),
                        "copy it to host memory or to an NVIDIA GPU first");
  }
  if (device.device_id < 0) throw_corrupt(fmt::format("lies on GPU {}", device.device_id));
  return Place::device(BackendKind::cuda, device.device_id);
}

DLManagedTensorVersioned* export_dlpack(const DlpackArray& array) {
  auto* const managed = export_as<DLManagedTensorVersioned>(array);
  managed->version = dlpack::kVersion;
  managed->flags = (array.is_read_only ? dlpack::kFlagReadOnly : 0) | (array.is_copied ? dlpack::kFlagIsCopied : 0);
  return managed;
}

DLManagedTensor* export_dlpack_unversioned(const DlpackArray& array) {
  if (array.is_read_only) {
    throw_unsupported("without a version cannot say that it must not be written",
                      "ask for a version, __dlpack__(max_version=(1, 0)), or copy it first");
  }
  return export_as<DLManagedTensor>(array);
}

DlpackArray import_dlpack(DLManagedTensorVersioned* managed) {
  auto owner = owner_of(managed);
  if (managed->version.major != dlpack::kVersion.major) {  // nothing else can be read then
    throw_unsupported(fmt::format("has version {}.{}, and {}.x is known here", managed->version.major,
                                  managed->version.minor, dlpack::kVersion.major),
                      fmt::format("ask for __dlpack__(max_version=({}, 0))", dlpack::kVersion.major));
  }
  DlpackArray array = array_of(managed->dl_tensor);
  array.is_read_only = (managed->flags & dlpack::kFlagReadOnly) != 0;
  array.is_copied = (managed->flags & dlpack::kFlagIsCopied) != 0;
  array.keeper = std::move(owner);
  return array;
}

DlpackArray import_dlpack(DLManagedTensor* managed) {
  auto owner = owner_of(managed);
  DlpackArray array = array_of(managed->dl_tensor);
  array.keeper = std::move(owner);
  return array;
}

}  // namespace drover
