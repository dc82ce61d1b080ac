// Tensors: the buffer protocol, and exchange with other libraries by DLPack.
#include "drover/tensor/tensor.hpp"
#include "drover/device/stream.hpp"

#include <array>
#include <memory>
#include <string>

#include "drover/base/error.hpp"
#include "drover/tensor/dlpack.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

// The format of the struct module; null if there is none.
const char* format_of(DType dtype) {
  switch (dtype) {
    case DType::boolean: return "?";
    case DType::int8: return "b";
    case DType::int16: return "h";
    case DType::int32: return "i";
    case DType::int64: return "q";
    case DType::uint8: return "B";
    case DType::uint16: return "H";
    case DType::uint32: return "I";
    case DType::uint64: return "Q";
    case DType::float16: return "e";
    case DType::float32: return "f";
    case DType::float64: return "d";
    case DType::complex64: return "Zf";
    case DType::complex128: return "Zd";
    case DType::bfloat16: break;
  }
  return nullptr;
}

// The arrays that a Py_buffer points to.
struct View {
  std::vector<Py_ssize_t> shape;
  std::vector<Py_ssize_t> strides;
  std::string format;
  std::shared_ptr<void> exported;  // by which a later message finds the tensor at this address
};

std::unique_ptr<View> view_of(const Tensor& tensor) {
  auto view = std::make_unique<View>();
  const auto size = static_cast<Py_ssize_t>(size_of(tensor.dtype()));
  view->format = format_of(tensor.dtype());
  for (const std::int64_t length : tensor.shape()) view->shape.push_back(length);
  for (const std::int64_t stride : tensor.layout().strides()) view->strides.push_back(stride * size);
  return view;
}

void fill_view(const Tensor& tensor, Py_buffer& buffer) {
  if (tensor.place().is_device)
    throw Error(Errc::invalid_argument, "a tensor on a device has no buffer", "copy it with to('cpu')");
  if (format_of(tensor.dtype()) == nullptr)
    throw Error(Errc::unsupported, "Python buffers do not support bfloat16", "use torch.from_dlpack(tensor)");
  DlpackArray array = to_dlpack(tensor);
  auto view = view_of(tensor);
  view->exported = std::move(array.keep_alive);
  auto* const data = array.host() + tensor.layout().offset() * static_cast<std::int64_t>(size_of(tensor.dtype()));
  buffer.buf = data;
  buffer.len = static_cast<Py_ssize_t>(tensor.bytes());
  buffer.itemsize = static_cast<Py_ssize_t>(size_of(tensor.dtype()));
  buffer.readonly = 0;
  buffer.ndim = static_cast<int>(view->shape.size());
  buffer.shape = view->shape.data();
  buffer.strides = view->strides.data();
  buffer.suboffsets = nullptr;
  buffer.format = view->format.data();
  buffer.internal = view.release();
}

// Strides are always filled in; a consumer that did not ask for them gets an error unless it may ignore them.
int get_buffer(PyObject* self, Py_buffer* buffer, int flags) noexcept {
  const Tensor& tensor = *nb::inst_ptr<Tensor>(self);
  try {
    if (!tensor.layout().is_contiguous() && (flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
      PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous: use contiguous()");
      return -1;
    }
    fill_view(tensor, *buffer);
    if ((flags & PyBUF_FORMAT) != PyBUF_FORMAT) buffer->format = nullptr;
    buffer->obj = Py_NewRef(self);
    return 0;
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
    return -1;
  }
}

void release_buffer(PyObject* /*self*/, Py_buffer* buffer) noexcept { delete static_cast<View*>(buffer->internal); }

std::array<PyType_Slot, 3> tensor_slots = {PyType_Slot{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
                                           PyType_Slot{Py_bf_releasebuffer, reinterpret_cast<void*>(&release_buffer)},
                                           PyType_Slot{0, nullptr}};

constexpr const char* kOld = "dltensor";
constexpr const char* kVersioned = "dltensor_versioned";

template <class Managed>
void end_capsule(PyObject* capsule, const char* name) noexcept {
  if (PyCapsule_IsValid(capsule, name) == 0) return;  // a consumer has renamed it
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (managed->deleter != nullptr) managed->deleter(managed);
}

nb::object export_capsule(const Tensor& tensor, std::optional<std::intptr_t> stream, const nb::object& max_version) {
  const DlpackArray array = [&] {  // may wait for the elements
    const Released free;
    return tensor.place().is_device ? to_dlpack(tensor, stream.value_or(1)) : to_dlpack(tensor);
  }();
  if (max_version.is_none() || nb::cast<int>(max_version[0]) < 1) {
    return nb::steal(PyCapsule_New(export_dlpack_unversioned(array), kOld,
                                   [](PyObject* capsule) { end_capsule<dlpack::DLManagedTensor>(capsule, kOld); }));
  }
  return nb::steal(PyCapsule_New(export_dlpack(array), kVersioned, [](PyObject* capsule) {
    end_capsule<dlpack::DLManagedTensorVersioned>(capsule, kVersioned);
  }));
}

Tensor allocate(const PySession& session, const std::string& dtype, const std::vector<std::int64_t>& shape,
                const std::string& place, bool is_zeroed) {
  const auto make = is_zeroed ? zeros : empty;
  return make(session.memory, parse_dtype(dtype), Dims(shape), Place::parse(place));
}

Tensor copied(const PySession& session, nb::handle object) {
  const Bytes bytes(object);
  const Released free;
  return from_values(session.memory,
                     std::span(reinterpret_cast<const std::uint8_t*>(bytes.bytes().data()), bytes.bytes().size()));
}

std::vector<std::int64_t> to_vector(std::span<const std::int64_t> numbers) {
  return {numbers.begin(), numbers.end()};
}

Tensor tensor_at(const Tensors& tensors, Py_ssize_t index) {
  const auto count = static_cast<Py_ssize_t>(tensors.all.size());
  if (index < 0) index += count;
  if (index < 0 || index >= count) throw nb::index_error("the message has no such tensor");
  return tensors.all[static_cast<std::size_t>(index)];
}

nb::object item_of(const Tensors& tensors, nb::handle index) {
  nb::slice part;
  if (!nb::try_cast(index, part)) return nb::cast(tensor_at(tensors, nb::cast<Py_ssize_t>(index)));
  nb::list list;
  auto [at, end, step, count] = part.compute(tensors.all.size());
  for (; count > 0; --count, at += step) list.append(nb::cast(tensor_at(tensors, at)));
  return list;
}

nb::tuple device_of(const Tensor& tensor) {
  const dlpack::DLDevice device = to_dlpack(tensor.place());
  return nb::make_tuple(static_cast<int>(device.device_type), device.device_id);
}

}  // namespace

void bind_tensor(nb::module_& module) {
  nb::set_leak_warnings(false);  // programs may hold arrays until they exit
  nb::class_<Tensor>(module, "Tensor", nb::type_slots(tensor_slots.data()),
                     "An array in shared memory, on the host or a device.")
      .def_prop_ro("dtype", [](const Tensor& self) { return std::string(to_string(self.dtype())); })
      .def_prop_ro("shape", [](const Tensor& self) { return nb::tuple(nb::cast(to_vector(self.shape()))); })
      .def_prop_ro("nbytes", &Tensor::bytes)
      .def_prop_ro("place", [](const Tensor& self) { return to_string(self.place()); })
      .def_prop_ro("is_ready", &Tensor::is_ready)
      .def(
          "slice", [](const Tensor& self, std::int64_t begin, std::int64_t end) { return self.slice(0, begin, end); },
          nb::arg("begin"), nb::arg("end"))
      .def(
          "to", [](const Tensor& self, const std::string& place) { return self.to(Place::parse(place)); },
          nb::arg("place"), nb::call_guard<Released>())
      .def("copy", &Tensor::copy, nb::call_guard<Released>())
      .def("contiguous", &Tensor::contiguous, nb::call_guard<Released>())
      .def(
          "synchronize", [](const Tensor& self) { self.synchronize(); }, nb::call_guard<Released>())
      .def("__repr__", [](const Tensor& self) { return to_string(self); })
      .def("__dlpack_device__", &device_of)
      .def(
          "__dlpack__",
          [](const Tensor& self, std::optional<std::intptr_t> stream, const nb::object& max_version,
             const nb::object&, const nb::object&) { return export_capsule(self, stream, max_version); },
          nb::kw_only(), nb::arg("stream").none() = nb::none(), nb::arg("max_version").none() = nb::none(),
          nb::arg("dl_device").none() = nb::none(), nb::arg("copy").none() = nb::none());
  nb::class_<Tensors>(module, "Tensors", "A sequence of tensors.")
      .def("__len__", [](const Tensors& self) { return self.all.size(); })
      .def("__getitem__", &item_of, nb::arg("index"), "A tensor, or the list of those in a slice.");
  nb::class_<CaptureNotice>(module, "CaptureNotice", "Exists while the program captures a CUDA graph.")
      .def(nb::init<>())
      .def_static("exists", &CaptureNotice::exists, "Whether a graph is being captured.");
  module.def("empty", &allocate, nb::arg("session"), nb::arg("dtype"), nb::arg("shape"), nb::arg("place") = "cpu",
             nb::arg("is_zeroed") = false, nb::call_guard<Released>(), "Allocate a tensor.");
  module.def("copied", &copied, nb::arg("session"), nb::arg("buffer"), "Copy a buffer into a tensor of bytes.");
}

}  // namespace drover::python
