#include "plain.hpp"

namespace drover::python {
namespace {

constexpr int kDeepest = 8;
constexpr int kMostNodes = 100'000;  // bounds the check of containers that contain themselves or share parts

constexpr int kProtocol = 5;

// Never freed: tasks may still run while the interpreter ends.
const nb::object& pickle(const char* name) { return *new nb::object(nb::module_::import_("pickle").attr(name)); }

class PlainCheck {
 public:
  [[nodiscard]] bool holds(PyObject* object, int depth) {
    if (++nodes_ > kMostNodes) return false;
    if (object == Py_None || PyLong_CheckExact(object) || PyUnicode_CheckExact(object) ||
        PyFloat_CheckExact(object) || PyBool_Check(object) || PyComplex_CheckExact(object) ||
        PyBytes_CheckExact(object))
      return true;
    if (depth == kDeepest) return false;
    if (PyTuple_CheckExact(object)) return holds_all(object, depth, PyTuple_Size(object), PyTuple_GetItem);
    if (PyList_CheckExact(object)) return holds_all(object, depth, PyList_Size(object), PyList_GetItem);
    return PyDict_CheckExact(object) && holds_pairs(object, depth);
  }

 private:
  template <class Get>
  bool holds_all(PyObject* items, int depth, Py_ssize_t count, Get get) {
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!holds(get(items, i), depth + 1)) return false;
    }
    return true;
  }
  bool holds_pairs(PyObject* dict, int depth) {
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &key, &value) != 0) {
      if (!holds(key, depth + 1) || !holds(value, depth + 1)) return false;
    }
    return true;
  }

  int nodes_ = 0;
};

}  // namespace

bool is_plain(nb::handle object) { return PlainCheck().holds(object.ptr(), 0); }

nb::object pickled(nb::handle object) {
  static const nb::object& dumps = pickle("dumps");
  static const nb::object& protocol = *new nb::object(nb::int_(kProtocol));
  return dumps(object, protocol);
}

nb::object view_or_copy(std::span<const std::byte> bytes) {
  if (bytes.size() < kViewed) return to_bytes(bytes);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): PyBUF_READ makes the view read-only
  auto* const data = reinterpret_cast<char*>(const_cast<std::byte*>(bytes.data()));
  return nb::steal(PyMemoryView_FromMemory(data, static_cast<Py_ssize_t>(bytes.size()), PyBUF_READ));
}

nb::object unpickled(std::span<const std::byte> bytes) {
  static const nb::object& loads = pickle("loads");
  return loads(view_or_copy(bytes));
}

void bind_plain(nb::module_& module) {
  module.def("is_plain", &is_plain, nb::arg("object").none(), "Whether pickle alone can send an object.");
}

}  // namespace drover::python
