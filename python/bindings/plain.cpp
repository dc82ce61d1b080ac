#include "plain.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <vector>

#include "tensor/tensor_access.hpp"

namespace drover::python {
namespace {

constexpr int kDeepest = 8;
constexpr int kMostNodes = 100'000;  // bounds the check of containers that contain themselves or share parts

constexpr int kProtocol = 5;
constexpr std::size_t kLargePickle = std::size_t{1} << 20U;
constexpr char kOutside = '\x03';  // the payload of a message whose first tensor is the pickle; drover/_objects.py

// Never freed: tasks may still run while the interpreter ends.
const nb::object& pickle(const char* name) { return *new nb::object(nb::module_::import_("pickle").attr(name)); }

class PlainCheck {
 public:
  [[nodiscard]] bool holds(PyObject* object, int depth) {
    if (++nodes_ > kMostNodes) return false;
    if (object == Py_None || PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyBool_Check(object) ||
        PyComplex_CheckExact(object))
      return true;
    if (PyUnicode_CheckExact(object)) return holds_bytes(PyUnicode_GetLength(object));
    if (PyBytes_CheckExact(object)) return holds_bytes(PyBytes_Size(object));
    if (depth == kDeepest) return false;
    if (PyTuple_CheckExact(object)) return holds_all(object, depth, PyTuple_Size(object), PyTuple_GetItem);
    if (PyList_CheckExact(object)) return holds_all(object, depth, PyList_Size(object), PyList_GetItem);
    return PyDict_CheckExact(object) && holds_pairs(object, depth);
  }

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  bool holds_bytes(Py_ssize_t count) noexcept {
    bytes_ += static_cast<std::size_t>(count);
    return true;
  }
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
  std::size_t bytes_ = 0;
};

// The first write to a new slab needs no page faults, so it is that of the longest part.
Tensor joined(std::span<const std::span<const std::byte>> parts, const Memory& memory) {
  const Released free;
  std::size_t size = 0;
  std::size_t longest = 0;
  for (const auto& part : parts) {
    longest = std::max(longest, part.size());
    size += part.size();
  }
  Tensor made = empty(memory, DType::uint8, {static_cast<std::int64_t>(size)});
  const auto& storage = *tensor::TensorAccess::storage(made);
  for (const bool is_first : {true, false}) {
    std::size_t at = 0;
    for (const auto& part : parts) {
      if ((part.size() == longest) == is_first) storage.write(at, part);
      at += part.size();
    }
  }
  return made;
}

nb::object pickled(nb::handle object) {
  static const nb::object& dumps = pickle("dumps");
  static const nb::object& protocol = *new nb::object(nb::int_(kProtocol));
  return dumps(object, protocol);
}

// A pickler that writes to a file passes long bytes on without a copy.
Tensor pickled_outside(nb::handle object, const Memory& memory) {
  const nb::list written;
  const nb::object file =
      nb::module_::import_("types").attr("SimpleNamespace")(nb::arg("write") = written.attr("append"));
  nb::module_::import_("pickle").attr("Pickler")(file, kProtocol).attr("dump")(object);
  std::deque<Bytes> held;
  std::vector<std::span<const std::byte>> parts;
  for (const nb::handle part : written) parts.push_back(held.emplace_back(part).bytes());
  return joined(parts, memory);
}

Pickled outside(Tensor pickle) { return {.payload = nb::bytes(&kOutside, 1), .tensors = {std::move(pickle)}}; }

}  // namespace

std::optional<std::size_t> plain_size(nb::handle object) {
  PlainCheck check;
  return check.holds(object.ptr(), 0) ? std::optional(check.bytes()) : std::nullopt;
}

Pickled to_message(nb::handle object, const Memory& memory, const nb::object& dumps) {
  if (const auto size = plain_size(object)) {
    if (*size >= kLargePickle) return outside(pickled_outside(object, memory));
    return {.payload = pickled(object), .is_plain = true};
  }
  const nb::object pair = dumps(object);
  Pickled made{.payload = pair[0], .tensors = to_tensors(pair[1])};
  const Bytes payload(made.payload);
  if (!made.tensors.empty() || payload.bytes().size() < kLargePickle) return made;
  const std::array whole{payload.bytes()};
  return outside(joined(whole, memory));
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
  module.def(
      "is_plain", [](nb::handle object) { return plain_size(object).has_value(); }, nb::arg("object").none(),
      "Whether pickle alone can send an object.");
}

}  // namespace drover::python
