#include "arrays.hpp"

#include <algorithm>
#include <utility>

#include "drover/base/error.hpp"
#include "drover/base/fd.hpp"
#include "slabs.hpp"
#include "tensor/exchange/array_copies.hpp"
#include "tensor/exchange/exported_blocks.hpp"
#include "tensor/tensor_access.hpp"

namespace drover::python {
namespace {

constexpr const char* kOld = "dltensor";
constexpr const char* kVersioned = "dltensor_versioned";

const ExchangeApi& api_of(nb::handle type) {
  const ExchangeApi* const api = ExchangeApi::find(type);
  if (api != nullptr) return *api;
  throw Error(Errc::unsupported, "this library has no DLPack exchange API: " + nb::cast<std::string>(nb::repr(type)),
              "pass its arrays as capsules");
}

DlpackArray in_host_memory(std::span<const std::byte> bytes, std::shared_ptr<void> keep_alive) {
  const auto count = static_cast<std::int64_t>(bytes.size());
  return {.layout = TensorLayout::contiguous(DType::uint8, std::span(&count, 1)),
          .place = Place::cpu(),
          .base = {reinterpret_cast<std::uint64_t>(bytes.data())},
          .keep_alive = std::move(keep_alive)};
}

// The tensor of bytes that a buffer lies in.
std::optional<Tensor> find_shared(const PySession& session, nb::handle object) {
  const Bytes bytes(object);
  if (bytes.bytes().empty()) return std::nullopt;
  return find_tensor(session.memory, in_host_memory(bytes.bytes(), nullptr), std::nullopt);
}

// The tensor of bytes that memory of a GPU lies in.
std::optional<Tensor> find_on_device(const PySession& session, std::uint64_t address, std::int64_t bytes,
                                     int device) {
  if (bytes == 0) return std::nullopt;
  const DlpackArray array{.layout = TensorLayout::contiguous(DType::uint8, std::span(&bytes, 1)),
                          .place = Place::device(BackendKind::cuda, device),
                          .base = {address},
                          .keep_alive = nullptr};
  return find_tensor(session.memory, array, std::nullopt);
}

// Libraries change the strides of dimensions of length 1 when they export arrays; `strides` are the original ones.
ImportRequest request_for(nb::handle capsule, std::optional<std::uintptr_t> stream,
                          const std::optional<std::vector<std::int64_t>>& strides) {
  DlpackArray array = consume_capsule(capsule);
  if (strides) array.layout = TensorLayout::strided(array.layout.dtype(), array.layout.shape(), Dims(*strides), 0);
  array.keep_alive = dropped_with_lock(std::move(array.keep_alive));
  return {.array = std::move(array), .options = {.stream = stream}};
}

nb::tuple import_array(const PySession& session, nb::handle capsule, std::optional<std::uintptr_t> stream,
                       const std::optional<std::vector<std::int64_t>>& strides, bool by_reference) {
  ImportRequest request = request_for(capsule, stream, strides);
  request.options.by_reference = by_reference;
  const Imported imported = import_tensor(session.memory, request.array, request.options);
  return nb::make_tuple(imported.tensor, to_string(imported.way));
}

// The name of a method of torch. Leaked, since the interpreter may end before the library is unloaded.
const nb::object& lasting(const char* name) { return *new nb::object(interned(name)); }

// What keeps the elements of an array allocated. For tensors of torch it is the storage: a tensor may get another one
// before the elements are copied, or while receivers have the old one.
nb::object storage_of(nb::handle array) {
  static const nb::object& name = lasting("untyped_storage");
  nb::object storage = call_method(array, name);
  if (storage.is_valid()) return storage;
  if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw nb::python_error();
  PyErr_Clear();
  return nb::borrow(array);
}

nb::object called(nb::handle object, const nb::object& method) {
  nb::object result = call_method(object, method);
  if (!result.is_valid()) throw nb::python_error();
  return result;
}

// The block of drover's memory in which an array lies; null if there is none, or another library divides it, so that
// only the library can keep the array allocated.
std::shared_ptr<void> shared_block_of(const DlpackArray& array) {
  const tensor::ArrayRange range(array);
  auto found = tensor::ExportedBlocks::instance().find(array.place, range.begin, range.bytes);
  return found.is_divided ? nullptr : std::move(found.storage);
}

// Whether the elements of an array of torch are the conjugates of those in memory.
bool is_conjugate(nb::handle array, const dlpack::DLDataType& type) {
  static const nb::object& is_conj = lasting("is_conj");
  return type.code == dlpack::kDLComplex && !called(array, is_conj).is(Py_False);
}

// Whether an array of torch on the host, outside of drover's memory, is sent as a tensor. Not if torch shares its
// storage, nor if the storage was cut after the array was made, which torch can say better.
bool is_sent_by(const HostRules& rules, nb::handle array, const DlpackArray& described) {
  static const nb::object& is_shared = lasting("is_shared");
  static const nb::object& data_ptr = lasting("data_ptr");
  static const nb::object& nbytes = lasting("nbytes");
  const tensor::ArrayRange range(described);
  if (range.bytes < rules.least_bytes) return false;
  const nb::object storage = storage_of(array);
  if (!called(storage, is_shared).is(Py_False)) return false;
  const auto begin = nb::cast<std::uint64_t>(called(storage, data_ptr));
  return range.end() <= begin + nb::cast<std::uint64_t>(called(storage, nbytes));
}

// A descriptor that its owner closes, also if a call with it throws.
class BorrowedFd {
 public:
  explicit BorrowedFd(int number) noexcept : fd_(number) {}
  BorrowedFd(const BorrowedFd&) = delete;
  BorrowedFd& operator=(const BorrowedFd&) = delete;
  ~BorrowedFd() { static_cast<void>(fd_.release()); }
  [[nodiscard]] const Fd& get() const noexcept { return fd_; }

 private:
  Fd fd_;
};

}  // namespace

nb::object to_array(const Tensor& tensor, const ExchangeApi& api) {
  DlpackArray array = [&] {
    if (const auto stream = api.dlpack_stream_at(tensor.place())) return to_dlpack(tensor, *stream);
    if (tensor.is_ready()) return to_dlpack(tensor);
    const Released free;  // waits for the elements
    return to_dlpack(tensor);
  }();
  void* object = nullptr;
  if (api.to_object(export_dlpack(std::move(array)), &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

// Renames the capsule first: from then on we own its array, even if the import fails.
DlpackArray consume_capsule(nb::handle capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), kVersioned) != 0) {
    auto* const managed =
        static_cast<dlpack::DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kVersioned));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
    return import_dlpack(managed);
  }
  if (PyCapsule_IsValid(capsule.ptr(), kOld) == 0)
    throw Error(Errc::invalid_argument, "the object is not a DLPack capsule, or the capsule was already consumed");
  auto* const managed = static_cast<dlpack::DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kOld));
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  return import_dlpack(managed);
}

std::size_t Arrays::add(ImportRequest request) {
  requests_.push_back(std::move(request));
  return size() - 1;
}

std::size_t Arrays::add(nb::handle array) {
  const ExchangeApi& api = api_of(array.type());
  dlpack::DLTensor described{.device = {.device_type = dlpack::kDLCPU}};
  if (api.describe(array.ptr(), &described) != 0) throw nb::python_error();
  return add(array, api, describe_dlpack(described));
}

std::optional<std::size_t> Arrays::add_if_tensor(nb::handle array, const ExchangeApi& api, const HostRules& rules) {
  dlpack::DLTensor described{.device = {.device_type = dlpack::kDLCPU}};
  if (api.describe(array.ptr(), &described) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  const bool is_on_host = described.device.device_type == dlpack::kDLCPU;
  if (is_on_host ? rules.by_reference : described.device.device_type != dlpack::kDLCUDA) return std::nullopt;
  try {
    DlpackArray found = describe_dlpack(described);
    if (found.layout.element_count() == 0 || is_conjugate(array, described.dtype)) return std::nullopt;
    found.keep_alive = shared_block_of(found);
    const bool is_in_slab = found.keep_alive != nullptr;
    if (is_on_host && !is_in_slab && !is_sent_by(rules, array, found)) return std::nullopt;
    return add(array, api, std::move(found));
  } catch (const Error& error) {
    // Corrupt: the storage of the tensor was freed, which its library can say better.
    if (error.code() != Errc::unsupported && error.code() != Errc::corrupt) throw;
    return std::nullopt;
  }
}

std::size_t Arrays::add(nb::handle array, const ExchangeApi& api, DlpackArray described) {
  ImportRequest request{.array = std::move(described), .options = {.is_known = true}};
  if (request.array.keep_alive == nullptr) request.array.keep_alive = dropped_with_lock(storage_of(array));
  request.options.stream = stream_of(api, request.array.place);
  return add(std::move(request));
}

std::size_t Arrays::add_capsule(nb::handle capsule, std::optional<std::uintptr_t> stream,
                                const std::optional<std::vector<std::int64_t>>& strides, bool is_known) {
  ImportRequest request = request_for(capsule, stream, strides);
  request.options.is_known = is_known;
  return add(std::move(request));
}

std::size_t Arrays::add_tensor(const Tensor& tensor) {
  tensors_.emplace_back(size(), tensor);
  return size() - 1;
}

std::size_t Arrays::add_buffer(nb::handle buffer) {
  auto held = std::make_shared<Bytes>(buffer);
  const auto bytes = held->bytes();
  return add(
      ImportRequest{.array = in_host_memory(bytes, dropped_with_lock(std::shared_ptr<void>(std::move(held))))});
}

std::optional<std::uintptr_t> Arrays::stream_of(const ExchangeApi& api, const Place& place) {
  const auto known = std::ranges::find_if(
      streams_, [&](const CurrentStream& each) { return each.api == &api && each.place == place; });
  if (known != streams_.end()) return known->stream;
  streams_.push_back({.api = &api, .place = place, .stream = api.stream_at(place)});
  return streams_.back().stream;
}

std::vector<Tensor> Arrays::take(const PySession& session, bool by_reference) {
  auto requests = std::exchange(requests_, {});
  auto tensors = std::exchange(tensors_, {});
  streams_.clear();
  for (ImportRequest& request : requests) request.options.by_reference = by_reference;
  auto imported = [&] {  // may copy much
    const Released free;
    return import_tensors(session.memory, requests);
  }();
  std::vector<Tensor> all;
  all.reserve(imported.size() + tensors.size());
  auto next = tensors.begin();
  const auto add_made = [&] {
    for (; next != tensors.end() && next->first == all.size(); ++next) all.push_back(std::move(next->second));
  };
  for (Imported& each : imported) {
    add_made();
    all.push_back(std::move(each.tensor));
  }
  add_made();
  return all;
}

void Arrays::clear() noexcept {
  requests_.clear();
  tensors_.clear();
  streams_.clear();
}

void bind_arrays(nb::module_& module) {
  module.def(
      "tensor_of_file",
      [](const PySession& session, int file, std::int64_t offset, std::int64_t bytes) {
        const BorrowedFd borrowed(file);
        return tensor::TensorAccess::of_file(session.memory, borrowed.get(), offset + bytes).slice(0, offset);
      },
      nb::arg("session"), nb::arg("file"), nb::arg("offset"), nb::arg("bytes"),
      "Return a tensor of bytes in a file in which another library has shared memory.");
  nb::class_<Arrays>(module, "Arrays", "The arrays of a message, to import all at once.")
      .def(nb::init<>())
      .def("__len__", &Arrays::size)
      .def(
          "add", [](Arrays& self, nb::handle array) { return self.add(array); }, nb::arg("array"),
          "Add an array whose type has a DLPack exchange API; return its index.")
      .def("add_capsule", &Arrays::add_capsule, nb::arg("capsule"), nb::arg("stream").none(),
           nb::arg("strides").none() = nb::none(), nb::arg("is_known") = false,
           "Add an array of a DLPack capsule; return its index.")
      .def("add_tensor", &Arrays::add_tensor, nb::arg("tensor"), "Add a tensor; return its index.")
      .def("add_buffer", &Arrays::add_buffer, nb::arg("buffer"), "Add the bytes of a buffer; return its index.")
      .def(
          "take",
          [](Arrays& self, const PySession& session, bool by_reference) {
            return from_tensors(self.take(session, by_reference));
          },
          nb::arg("session"), nb::arg("by_reference") = false, "Import all arrays; return the tensors.")
      .def("clear", &Arrays::clear, "Forget all arrays.");
  module.def(
      "has_exchange_api", [](nb::handle type) { return ExchangeApi::find(type) != nullptr; }, nb::arg("type"),
      "Whether a type of arrays has a DLPack exchange API.");
  module.def(
      "to_array", [](const Tensor& tensor, nb::handle type) { return to_array(tensor, api_of(type)); },
      nb::arg("tensor"), nb::arg("type"), "The array of a type with an exchange API that a tensor is.");
  module.def("find_shared", &find_shared, nb::arg("session"), nb::arg("buffer"),
             "The tensor of bytes that a buffer lies in, or None.");
  module.def("find_on_device", &find_on_device, nb::arg("session"), nb::arg("address"), nb::arg("bytes"),
             nb::arg("device"), "The tensor of bytes that memory of a GPU lies in, or None.");
  module.def("import_array", &import_array, nb::arg("session"), nb::arg("capsule"), nb::arg("stream").none(),
             nb::arg("strides").none() = nb::none(), nb::arg("by_reference") = false,
             "Import another library's array; return the tensor and how it is shared.");
}

}  // namespace drover::python
