#include "drover/tensor/dlpack.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "tensor/exchange/exported_blocks.hpp"
#include "tensor/memory/deferred_releases.hpp"
#include "tensor/tensor_access.hpp"

namespace drover {
namespace {

struct Row {
  DType dtype;
  std::uint8_t code;
  std::uint8_t bits;
};

constexpr std::array kRows = {
    Row{DType::boolean, dlpack::kDLBool, 8},         Row{DType::int8, dlpack::kDLInt, 8},
    Row{DType::int16, dlpack::kDLInt, 16},           Row{DType::int32, dlpack::kDLInt, 32},
    Row{DType::int64, dlpack::kDLInt, 64},           Row{DType::uint8, dlpack::kDLUInt, 8},
    Row{DType::uint16, dlpack::kDLUInt, 16},         Row{DType::uint32, dlpack::kDLUInt, 32},
    Row{DType::uint64, dlpack::kDLUInt, 64},         Row{DType::float16, dlpack::kDLFloat, 16},
    Row{DType::bfloat16, dlpack::kDLBfloat, 16},     Row{DType::float32, dlpack::kDLFloat, 32},
    Row{DType::float64, dlpack::kDLFloat, 64},       Row{DType::complex64, dlpack::kDLComplex, 64},
    Row{DType::complex128, dlpack::kDLComplex, 128},
};
static_assert(kRows.size() == kAllDTypes.size());

// By code. The first seven are followed by their bits in a name; "" is none.
constexpr std::array<std::string_view, 18> kCodeNames = {
    "int",
    "uint",
    "float",
    "opaque",
    "bfloat",
    "complex",
    "bool",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
};
constexpr std::uint8_t kCodesWithBits = 7;

std::string type_name(const dlpack::DLDataType& type) {
  std::string name = type.code < kCodeNames.size() ? std::string(kCodeNames.at(type.code))
                                                   : fmt::format("code {} with bits ", type.code);
  if (type.code < kCodesWithBits || type.code >= kCodeNames.size()) name += std::to_string(type.bits);
  if (type.lanes != 1) name += fmt::format(" in vectors of {}", type.lanes);
  return name;
}

dlpack::DLDataType dlpack_type(DType dtype) {
  const auto* const row = std::ranges::find(kRows, dtype, &Row::dtype);
  if (row == kRows.end()) throw Error(Errc::internal, "a DType has no DLPack type", "please report this");
  return {.code = row->code, .bits = row->bits, .lanes = 1};
}

DType dtype_from(const dlpack::DLDataType& type) {
  const auto* const row =
      std::ranges::find_if(kRows, [&](const Row& each) { return each.code == type.code && each.bits == type.bits; });
  if (row != kRows.end() && type.lanes == 1) return row->dtype;
  throw Error(Errc::unsupported, fmt::format("a DLPack array has elements of type {}", type_name(type)),
              "convert it to a type of DType first, or view its bytes as uint8");
}

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

[[noreturn]] void throw_unsupported_array(const std::string& what, const std::string& remedy) {
  throw Error(Errc::unsupported, "a DLPack array " + what, remedy);
}
[[noreturn]] void throw_corrupt_array(const std::string& what) {
  throw Error(Errc::corrupt, "a DLPack array " + what, kProducer);
}

// Everything that another library reads, and what keeps the memory alive. May outlive `main`.
template <class Managed>
struct Exported {
  Managed managed{};  // NOLINT(bugprone-invalid-enum-default-initialization): filled before it is exported
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};
  std::shared_ptr<void> keep_alive;  // shared: the exporter may go on using the memory
};

// `data` points to the first element: some libraries ignore `byte_offset`.
template <class Managed>
Managed* export_as(DlpackArray array) {
  const auto& layout = array.layout;
  require(layout.is_valid(), "the layout of an array to export is not valid", "make it with TensorLayout");
  const bool is_empty = layout.element_count() == 0;
  require(is_empty || array.base.address != 0, "an array to export has elements but no memory",
          "set DlpackArray::base");
  auto owned = std::make_unique<Exported<Managed>>();
  std::ranges::copy(layout.shape(), owned->shape.begin());
  std::ranges::copy(layout.strides(), owned->strides.begin());
  owned->keep_alive = std::move(array.keep_alive);
  const auto first = array.base + static_cast<std::uint64_t>(layout.offset()) * size_of(layout.dtype());
  owned->managed.dl_tensor = {
      .data = is_empty ? nullptr : reinterpret_cast<void*>(first.address),  // NOLINT(performance-no-int-to-ptr)
      .device = to_dlpack(array.place),
      .ndim = layout.rank(),
      .dtype = dlpack_type(layout.dtype()),
      .shape = owned->shape.data(),
      .strides = owned->strides.data(),
      .byte_offset = 0};
  owned->managed.manager_ctx = owned.get();
  owned->managed.deleter = [](Managed* self) { delete static_cast<Exported<Managed>*>(self->manager_ctx); };
  return &owned.release()->managed;
}

// Strides of dimensions of size 1 have no effect, and libraries leave arbitrary values there, even negative ones.
Dims strides_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  std::array<std::int64_t, kMaxRank> result{};
  std::ranges::copy(strides, result.begin());
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (strides[i] >= 0) continue;
    if (shape[i] != 1) throw_unsupported_array("has a negative stride", "copy it first, to a contiguous array");
    result.at(i) = 1;
  }
  return std::span<const std::int64_t>(result.data(), strides.size());
}

TensorLayout layout_from(const DLTensor& tensor) {
  const DType dtype = dtype_from(tensor.dtype);
  if (tensor.ndim < 0) throw_corrupt_array(fmt::format("has {} dimensions", tensor.ndim));
  if (tensor.ndim > kMaxRank) {
    throw_unsupported_array(fmt::format("has {} dimensions, and a tensor at most {}", tensor.ndim, kMaxRank),
                            "merge dimensions first: reshape");
  }
  const auto rank = static_cast<std::size_t>(tensor.ndim);
  if (rank > 0 && tensor.shape == nullptr) throw_corrupt_array("has dimensions without sizes");
  const std::span<const std::int64_t> shape(tensor.shape, rank);
  if (std::ranges::any_of(shape, [](auto size) { return size < 0; })) throw_corrupt_array("has a negative size");
  if (tensor.byte_offset % size_of(dtype) != 0) {
    throw_unsupported_array(fmt::format("begins at byte {}, which is not a multiple of {}, the size of {}",
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
    throw_corrupt_array("claims an impossible size: " + error.message());
  }
}

DlpackArray array_of(const DLTensor& tensor) {
  DlpackArray array{.layout = layout_from(tensor), .place = from_dlpack(tensor.device)};
  const bool is_empty = array.layout.element_count() == 0;
  if (tensor.data == nullptr && !is_empty) throw_corrupt_array("has elements but no memory");
  array.base = {.address = reinterpret_cast<std::uintptr_t>(tensor.data)};
  if (tensor.data != nullptr) array.base = array.base + tensor.byte_offset;
  return array;
}

template <class Managed>
std::shared_ptr<void> owner_of(Managed* managed) {
  require(managed != nullptr, "the DLPack array to import is null", "pass the pointer that the capsule holds");
  return std::shared_ptr<Managed>(managed, [](Managed* self) {
    if (self->deleter != nullptr) self->deleter(self);
  });
}

constexpr DlpackStream kUnordered = -1;

// A tensor that another library uses, perhaps on a stream; the block is released after the work of that stream. Until
// then the block's addresses are registered.
class ExportedTensor {
 public:
  ExportedTensor(Tensor tensor, std::shared_ptr<Stream> stream)
      : tensor_(std::move(tensor)), stream_(std::move(stream)), entry_(tensor::TensorAccess::storage(tensor_)) {}
  ExportedTensor(const ExportedTensor&) = delete;
  ExportedTensor& operator=(const ExportedTensor&) = delete;
  ~ExportedTensor() {
    if (tensor::TensorAccess::membership(tensor_.memory()).self() == kNobody) {
      entry_.leak();
      return;
    }
    if (stream_ != nullptr) tensor::DeferredReleases::instance().release(tensor_, std::move(stream_));
  }

 private:
  const Tensor tensor_;
  std::shared_ptr<Stream> stream_;
  tensor::ExportedBlocks::Entry entry_;
};

// The stream of another library that is to use tensors at a place; null if there is none to order.
std::shared_ptr<Stream> borrow(const Tensor& tensor, DlpackStream stream) {
  if (tensor.place().backend != BackendKind::cuda || !tensor.place().is_device || stream == kUnordered)
    return nullptr;
  if (stream <= 0) {
    throw Error(Errc::invalid_argument, fmt::format("{} does not name a stream for a DLPack export", stream),
                "pass 1 for the default stream, 2 for the per-thread default stream, the address of a CUstream, or "
                "-1 for none");
  }
  Device& device = tensor::TensorAccess::storage(tensor)->work_at(tensor.place())->device();
  return device.borrow_stream(static_cast<std::uintptr_t>(stream));
}

void begin_export(const Tensor& tensor, DlpackStream stream, Stream* borrowed) {
  if (borrowed != nullptr) {
    tensor.begin_use(*borrowed);
  } else if (stream != kUnordered || !tensor.place().is_device || tensor.place().backend != BackendKind::cuda) {
    tensor.synchronize();
  }
}

// Arrays in one block share one export: a message may have hundreds.
std::shared_ptr<void> export_of(const Tensor& tensor, DlpackStream stream,
                                const std::function<std::shared_ptr<Stream>()>& begin) {
  return tensor::TensorAccess::storage(tensor)->exported(
      stream, [&] { return std::make_shared<ExportedTensor>(tensor, begin()); });
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
      throw_unsupported_array(fmt::format("is on a device of type {}", static_cast<std::int32_t>(device.device_type)),
                              "copy it to host memory or to an NVIDIA GPU first");
  }
  if (device.device_id < 0) throw_corrupt_array(fmt::format("is on GPU {}", device.device_id));
  return Place::device(BackendKind::cuda, device.device_id);
}

DLManagedTensorVersioned* export_dlpack(DlpackArray array) {
  const std::uint64_t flags =
      (array.is_read_only ? dlpack::kFlagReadOnly : 0) | (array.is_copied ? dlpack::kFlagIsCopied : 0);
  auto* const managed = export_as<DLManagedTensorVersioned>(std::move(array));
  managed->version = dlpack::kVersion;
  managed->flags = flags;
  return managed;
}

DLManagedTensor* export_dlpack_unversioned(DlpackArray array) {
  if (array.is_read_only) {
    throw_unsupported_array("without a version cannot be marked read-only",
                            "ask for a version, __dlpack__(max_version=(1, 0)), or copy it first");
  }
  return export_as<DLManagedTensor>(std::move(array));
}

DlpackArray describe_dlpack(const DLTensor& tensor) { return array_of(tensor); }

DlpackArray import_dlpack(DLManagedTensorVersioned* managed) {
  auto owner = owner_of(managed);
  if (managed->version.major != dlpack::kVersion.major) {  // no other field can be read then
    throw_unsupported_array(fmt::format("has version {}.{}, and only {}.x is supported", managed->version.major,
                                        managed->version.minor, dlpack::kVersion.major),
                            fmt::format("ask for __dlpack__(max_version=({}, 0))", dlpack::kVersion.major));
  }
  DlpackArray array = array_of(managed->dl_tensor);
  array.is_read_only = (managed->flags & dlpack::kFlagReadOnly) != 0;
  array.is_copied = (managed->flags & dlpack::kFlagIsCopied) != 0;
  array.keep_alive = std::move(owner);
  return array;
}

DlpackArray import_dlpack(DLManagedTensor* managed) {
  auto owner = owner_of(managed);
  DlpackArray array = array_of(managed->dl_tensor);
  array.keep_alive = std::move(owner);
  return array;
}

DlpackArray to_dlpack(const Tensor& tensor, DlpackStream stream) {
  auto exported = export_of(tensor, stream, [&] {
    auto borrowed = borrow(tensor, stream);
    begin_export(tensor, stream, borrowed.get());
    return borrowed;
  });
  return {.layout = tensor.layout(),
          .place = tensor.place(),
          .base = tensor::address_of(tensor::TensorAccess::storage(tensor)->block()),
          .keep_alive = std::move(exported)};
}

std::shared_ptr<void> begin_exports(std::span<const Tensor> tensors, DlpackStream stream) {
  auto exports = std::make_shared<std::vector<std::shared_ptr<void>>>();
  if (tensors.empty()) return exports;
  auto borrowed = borrow(tensors.front(), stream);
  if (borrowed == nullptr) return exports;
  begin_use(tensors, *borrowed);
  exports->reserve(tensors.size());
  for (const Tensor& tensor : tensors) exports->push_back(export_of(tensor, stream, [&] { return borrowed; }));
  return exports;
}

}  // namespace drover
