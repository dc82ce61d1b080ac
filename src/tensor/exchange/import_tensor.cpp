#include "drover/tensor/dlpack.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/base/trace.hpp"
#include "drover/device/backend.hpp"
#include "tensor/exchange/exported_blocks.hpp"
#include "tensor/tensor_access.hpp"

namespace drover {
namespace {

// The bytes from the first element to the last.
struct Range {
  DevicePtr begin;
  std::uint64_t bytes = 0;
};

Range range_of(const DlpackArray& array) {
  const ByteRange extent = array.layout.extent_bytes();
  return {.begin = array.base + extent.begin, .bytes = extent.end - extent.begin};
}

// The same elements in a memory in which the first of them lies at byte `bytes`.
TensorLayout moved(const TensorLayout& layout, std::uint64_t bytes) {
  return TensorLayout::strided(layout.dtype(), layout.shape(), layout.strides(),
                               static_cast<std::int64_t>(bytes / size_of(layout.dtype())));
}

PointerInfo describe(const DlpackArray& array) {
  const DevicePtr first = range_of(array).begin;
  const PointerInfo info = backend_of(array.place.backend).open(array.place.index).describe(first);
  if (info.is_device) return info;
  throw Error(Errc::invalid_argument,
              fmt::format("cannot import an array at {}: no device memory lies at {:#x}", to_string(array.place),
                          first.address),
              "import arrays before they are freed, with the place where they lie");
}

ImportWay way_for(const DlpackArray& array, const PointerInfo& info) {
  const Range range = range_of(array);
  const std::uint64_t offset = info.offset_of(range.begin);
  const bool is_inside = offset <= info.size && range.bytes <= info.size - offset;
  if (!is_inside || offset % size_of(array.layout.dtype()) != 0) return ImportWay::copied;
  if (info.device != array.place.index || info.is_pool || info.is_managed) return ImportWay::copied;
  if (info.can_retain) return ImportWay::retained;
  return info.can_legacy_ipc ? ImportWay::ipc_handle : ImportWay::copied;
}

void order_after(const Tensor& tensor, const std::optional<std::uintptr_t>& stream) {
  if (!stream) return;
  const Place place = tensor.place();
  tensor.end_use(*backend_of(place.backend).open(place.index).borrow_stream(*stream));
}

Tensor shared(const Memory& memory, const DlpackArray& array, const PointerInfo& info, ImportWay way) {
  const tensor::ForeignMemory foreign{
      .place = array.place,
      .base = info.base,
      .size = info.size,
      .buffer_id = info.buffer_id,
      .form = way == ImportWay::retained ? tensor::SlabForm::memory : tensor::SlabForm::handle};
  const Range range = range_of(array);
  const tensor::KeptBytes kept{.begin = range.begin, .bytes = range.bytes, .keep_alive = array.keep_alive};
  auto storage = std::make_shared<tensor::TensorStorage>(memory, foreign, kept);
  return tensor::TensorAccess::make(std::move(storage), moved(array.layout, info.offset_of(range.begin)));
}

// Copies all bytes from the first to the last at once; then, if there are gaps, the elements alone.
Tensor copied_on_device(const Memory& memory, const DlpackArray& array, const ImportOptions& options) {
  const Range range = range_of(array);
  const auto storage = std::make_shared<tensor::TensorStorage>(memory, array.place, range.bytes);
  const Tensor all = tensor::TensorAccess::make(storage, moved(array.layout, 0));
  order_after(all, options.stream);
  const auto work = storage->work_at(array.place);
  tensor::submit_use(work, {storage.get()},
                     [&](Stream& stream) { stream.copy(storage->block().device_ptr(), range.begin, range.bytes); });
  storage->hold(array.keep_alive);
  return all.contiguous();
}

Tensor copied(const Memory& memory, const DlpackArray& array, const ImportOptions& options) {
  const TraceSpan span("tensor.import.copied", array.layout.bytes());
  if (array.layout.element_count() == 0) {
    return empty(memory, array.layout.dtype(), array.layout.shape(), array.place);
  }
  if (array.place.is_device) return copied_on_device(memory, array, options);
  return from_bytes(memory, array.layout, {array.host(), array.layout.extent_bytes().end});
}

// A view of the block in which the array lies. nullopt for memory that dies with another process, which must be
// described by its driver.
std::optional<Tensor> known_by_address(const Memory& memory, const DlpackArray& array) {
  const Range range = range_of(array);
  auto storage = tensor::ExportedBlocks::instance().find(array.place, range.begin, range.bytes);
  if (storage == nullptr || storage->dies_with_its_process()) return std::nullopt;
  if (&tensor::TensorAccess::membership(storage->memory()) != &tensor::TensorAccess::membership(memory))
    return std::nullopt;
  const std::uint64_t offset = range.begin.address - storage->block().device_ptr().address;
  if (offset % size_of(array.layout.dtype()) != 0) return std::nullopt;
  return tensor::TensorAccess::make(std::move(storage), moved(array.layout, offset));
}

Imported imported_from_device(const Memory& memory, const DlpackArray& array, const ImportOptions& options) {
  if (options.may_share) {
    if (auto known = find_tensor(memory, array, options.stream)) return {.tensor = *known, .way = ImportWay::own};
  }
  const PointerInfo info = describe(array);
  const ImportWay way = options.may_share ? way_for(array, info) : ImportWay::copied;
  if (way == ImportWay::copied) return {.tensor = copied(memory, array, options), .way = way};
  try {
    const TraceSpan span(way == ImportWay::retained ? "tensor.import.retained" : "tensor.import.ipc_handle",
                         array.layout.bytes());
    Imported imported{.tensor = shared(memory, array, info, way), .way = way};
    order_after(imported.tensor, options.stream);
    return imported;
  } catch (const Error& error) {  // drivers may report support that they lack, e.g. in containers
    if (error.code() != Errc::unsupported) throw;
    log(LogLevel::info, error.what());
  }
  return {.tensor = copied(memory, array, options), .way = ImportWay::copied};
}

}  // namespace

const char* to_string(ImportWay way) noexcept {
  constexpr std::array kNames = {"ipc_handle", "retained", "copied", "own"};
  return kNames.at(static_cast<std::size_t>(way));
}

Imported import_tensor(const Memory& memory, const DlpackArray& array, const ImportOptions& options) {
  require(array.layout.is_valid(), "the layout of an array to import is not valid",
          "make it with TensorLayout::strided, or import_dlpack");
  require(!options.stream || array.place.is_device, "cannot order an array in host memory after a stream",
          "synchronize the stream, then import the array without it");
  if (array.place.is_device && array.layout.element_count() > 0) return imported_from_device(memory, array, options);
  return {.tensor = copied(memory, array, options), .way = ImportWay::copied};
}

std::optional<Tensor> find_tensor(const Memory& memory, const DlpackArray& array,
                                  const std::optional<std::uintptr_t>& stream) {
  if (!array.place.is_device || array.layout.element_count() == 0) return std::nullopt;
  auto known = known_by_address(memory, array);
  if (!known) return std::nullopt;
  const TraceSpan span("tensor.import.own", array.layout.bytes());
  order_after(*known, stream);
  return known;
}

}  // namespace drover
