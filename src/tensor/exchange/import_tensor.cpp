#include "drover/tensor/dlpack.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/base/trace.hpp"
#include "drover/device/backend.hpp"
#include "tensor/exchange/array_copies.hpp"
#include "tensor/exchange/exported_blocks.hpp"
#include "tensor/tensor_access.hpp"

namespace drover {
namespace {

PointerInfo describe(const DlpackArray& array) {
  const DevicePtr first = tensor::ArrayRange(array).begin;
  const PointerInfo info = backend_of(array.place.backend).open(array.place.index).describe(first);
  if (info.is_device) return info;
  throw Error(Errc::invalid_argument,
              fmt::format("cannot import an array at {}: no device memory lies at {:#x}", to_string(array.place),
                          first.address),
              "import arrays before they are freed, with the place where they lie");
}

ImportWay way_for(const DlpackArray& array, const PointerInfo& info) {
  const tensor::ArrayRange range(array);
  const std::uint64_t offset = info.offset_of(range.begin);
  const bool is_inside = offset <= info.size && range.bytes <= info.size - offset;
  if (!is_inside || offset % size_of(array.layout.dtype()) != 0) return ImportWay::copied;
  if (info.device != array.place.index || info.is_pool || info.is_managed) return ImportWay::copied;
  if (info.can_retain) return ImportWay::retained;
  return info.can_legacy_ipc ? ImportWay::ipc_handle : ImportWay::copied;
}

// Orders tensors after what streams were given so far: one event serves all tensors of a call.
class StreamOrder {
 public:
  void order(const Tensor& tensor, const std::optional<std::uintptr_t>& stream) {
    if (!stream) return;
    const auto& storage = tensor::TensorAccess::storage(tensor);
    const auto work = storage->work_at(storage->place());
    const auto [at, is_new] = tickets_.try_emplace({work.get(), *stream});
    if (!is_new) return storage->end_use({.work = work, .ticket = at->second});
    const auto borrowed = work->device().borrow_stream(*stream);
    tensor.end_use(*borrowed);
    at->second = work->latest();
  }

 private:
  std::map<std::pair<const tensor::DeviceWork*, std::uintptr_t>, std::uint64_t> tickets_;
};

Tensor shared(const Memory& memory, const DlpackArray& array, const PointerInfo& info, ImportWay way) {
  const tensor::ForeignMemory foreign{
      .place = array.place,
      .base = info.base,
      .size = info.size,
      .buffer_id = info.buffer_id,
      .form = way == ImportWay::retained ? tensor::SlabForm::memory : tensor::SlabForm::handle};
  const tensor::ArrayRange range(array);
  const tensor::KeptBytes kept{.begin = range.begin, .bytes = range.bytes, .keep_alive = array.keep_alive};
  auto storage = std::make_shared<tensor::TensorStorage>(memory, foreign, kept);
  return tensor::TensorAccess::make(std::move(storage), tensor::moved(array.layout, info.offset_of(range.begin)));
}

// A view of the block in which the array lies, and a part of its own if a library divides the block. nullopt for
// memory that dies with another process, which must be described by its driver.
std::optional<Tensor> known_by_address(const Memory& memory, const DlpackArray& array) {
  const tensor::ArrayRange range(array);
  auto [storage, is_divided] = tensor::ExportedBlocks::instance().find(array.place, range.begin, range.bytes);
  if (storage == nullptr || storage->dies_with_its_process()) return std::nullopt;
  if (&tensor::TensorAccess::membership(storage->memory()) != &tensor::TensorAccess::membership(memory))
    return std::nullopt;
  const std::uint64_t offset = range.begin.address - tensor::address_of(storage->block()).address;
  if (offset % size_of(array.layout.dtype()) != 0) return std::nullopt;
  if (is_divided && array.keep_alive.use_count() > 0) {
    storage = std::make_shared<tensor::TensorStorage>(*storage, range.bytes, array.keep_alive);
  }
  return tensor::TensorAccess::make(std::move(storage), tensor::moved(array.layout, offset));
}

// The same memory, if other processes can use it. Drivers may report support that they lack, e.g. in containers.
std::optional<Imported> shared_if_possible(const Memory& memory, const ImportRequest& request, StreamOrder& order) {
  const PointerInfo info = describe(request.array);
  const ImportWay way = way_for(request.array, info);
  if (way == ImportWay::copied) return std::nullopt;
  try {
    const TraceSpan span(way == ImportWay::retained ? "tensor.import.retained" : "tensor.import.ipc_handle",
                         request.array.layout.bytes());
    Imported imported{.tensor = shared(memory, request.array, info, way), .way = way};
    order.order(imported.tensor, request.options.stream);
    return imported;
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
    log(LogLevel::info, error.what());
    return std::nullopt;
  }
}

bool is_shortage(const Error& error) noexcept {
  return error.code() == Errc::device_memory || error.code() == Errc::limit_reached;
}

// Once per process: the next message has no more room than this one.
void warn_of_shortage(const Error& error, const Place& place, std::uint64_t bytes) {
  static std::atomic<bool> is_warned{false};
  if (is_warned.exchange(true)) return;
  log(LogLevel::warn,
      fmt::format("no room at {} to copy {} into a message, so the arrays are sent by reference: they are lost if "
                  "process {} ends before the receiver has opened them, and later writes reach the receiver; free "
                  "memory at {}, or make the arrays in shared memory ({})",
                  to_string(place), format_bytes(bytes), ::getpid(), to_string(place), error.message()));
}

// Arrays of one place and stream that need a copy. Without room for it, shares what can be shared.
std::vector<Imported> import_copies(const Memory& memory, std::span<const ImportRequest* const> requests,
                                    StreamOrder& order) {
  const Place place = requests.front()->array.place;
  std::vector<Imported> all;
  try {
    auto tensors = tensor::ArrayCopies(memory, requests).run();
    for (Tensor& tensor : tensors) all.push_back({.tensor = std::move(tensor), .way = ImportWay::copied});
  } catch (const Error& error) {
    if (!place.is_device || !is_shortage(error)) throw;
    std::uint64_t bytes = 0;
    for (const ImportRequest* const request : requests) {
      auto imported = shared_if_possible(memory, *request, order);
      if (!imported) throw;
      bytes += request->array.layout.bytes();
      all.push_back(std::move(*imported));
    }
    warn_of_shortage(error, place, bytes);
  }
  return all;
}

void check(const ImportRequest& request) {
  require(request.array.layout.is_valid(), "the layout of an array to import is not valid",
          "make it with TensorLayout::strided, or import_dlpack");
  require(!request.options.stream || request.array.place.is_device,
          "cannot order an array in host memory after a stream",
          "synchronize the stream, then import the array without it");
}

// nullopt if the array must be copied.
std::optional<Imported> import_without_copy(const Memory& memory, const ImportRequest& request, StreamOrder& order) {
  const DlpackArray& array = request.array;
  if (array.layout.element_count() == 0) {
    return Imported{.tensor = empty(memory, array.layout.dtype(), array.layout.shape(), array.place),
                    .way = ImportWay::copied};
  }
  if (auto known = known_by_address(memory, array)) {
    const TraceSpan span("tensor.import.own", array.layout.bytes());
    order.order(*known, request.options.stream);
    return Imported{.tensor = *known, .way = ImportWay::own};
  }
  if (!array.place.is_device) return std::nullopt;
  if (request.options.by_reference) return shared_if_possible(memory, request, order);
  if (!request.options.is_known) static_cast<void>(describe(array));
  return std::nullopt;
}

}  // namespace

const char* to_string(ImportWay way) noexcept {
  constexpr std::array kNames = {"ipc_handle", "retained", "copied", "own"};
  return kNames.at(static_cast<std::size_t>(way));
}

Imported import_tensor(const Memory& memory, const DlpackArray& array, const ImportOptions& options) {
  const ImportRequest request{.array = array, .options = options};
  return std::move(import_tensors(memory, std::span(&request, 1)).front());
}

std::vector<Imported> import_tensors(const Memory& memory, std::span<const ImportRequest> requests) {
  std::ranges::for_each(requests, check);
  StreamOrder order;
  std::vector<Imported> all(requests.size());
  std::map<std::pair<Place, std::optional<std::uintptr_t>>, std::vector<const ImportRequest*>> copied;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (auto imported = import_without_copy(memory, requests[i], order)) {
      all[i] = std::move(*imported);
    } else {
      copied[{requests[i].array.place, requests[i].options.stream}].push_back(&requests[i]);
    }
  }
  for (const auto& [where, some] : copied) {
    auto imported = import_copies(memory, some, order);
    for (std::size_t i = 0; i < some.size(); ++i) {
      all[static_cast<std::size_t>(some[i] - requests.data())] = std::move(imported[i]);
    }
  }
  return all;
}

std::optional<Tensor> find_tensor(const Memory& memory, const DlpackArray& array,
                                  const std::optional<std::uintptr_t>& stream) {
  if (array.layout.element_count() == 0) return std::nullopt;
  auto known = known_by_address(memory, array);
  if (!known) return std::nullopt;
  const TraceSpan span("tensor.import.own", array.layout.bytes());
  StreamOrder().order(*known, stream);
  return known;
}

}  // namespace drover
