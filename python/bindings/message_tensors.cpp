// Torch's tensors in messages: a structure may have a thousand, so they are found and opened without Python code.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "drover/base/error.hpp"

namespace drover::python {
namespace {

// Leaked, since the interpreter may end before the library is unloaded.
template <class Made>
const Made& only() {
  static const auto& made = *new Made();
  return made;
}

// The attributes of a tensor that DLPack does not describe.
struct OtherAttributes {
  nb::object requires_grad = interned("requires_grad");
  nb::object hooks = interned("_backward_hooks");
  nb::object own = interned("__dict__");
  nb::object is_neg = interned("is_neg");
};

bool has(nb::handle tensor, const nb::object& name, PyObject* value) {
  return nb::steal(PyObject_GetAttr(tensor.ptr(), name.ptr())).is(value);
}

bool is_false(nb::handle tensor, const nb::object& method) { return call_method(tensor, method).is(Py_False); }

bool has_none(nb::handle tensor, const nb::object& name) {
  const nb::object found = nb::steal(PyObject_GetAttr(tensor.ptr(), name.ptr()));
  return found.is_valid() && PyDict_Size(found.ptr()) == 0;
}

// May set a Python exception if not.
bool is_described_by_dlpack(nb::handle tensor) {
  const auto& names = only<OtherAttributes>();
  return has(tensor, names.requires_grad, Py_False) && has(tensor, names.hooks, Py_None) &&
         has_none(tensor, names.own) && is_false(tensor, names.is_neg);
}

struct Torch {
  nb::module_ ours = nb::module_::import_("drover.torch");
  nb::object tensor = nb::module_::import_("torch").attr("Tensor");
  const ExchangeApi* api = ExchangeApi::find(tensor);
};

// The tensors of a message that is read.
class Incoming {
 public:
  explicit Incoming(nb::handle tensors) : sequence_(nb::borrow(tensors)), tensors_(tensors_of(tensors, made_)) {}

  // The tensor as one of torch, whose current stream waits for the work on it.
  nb::object open(std::size_t index) {
    if (index >= tensors_.size()) throw nb::index_error("the message has no such tensor");
    const Tensor& tensor = tensors_[index];
    const auto& torch = only<Torch>();
    begin(tensor.place());
    return torch.api == nullptr ? torch.ours.attr("opened")(nb::cast(tensor)) : to_array(tensor, *torch.api);
  }

 private:
  // Makes the stream wait for all tensors at a place at once, which makes it cheap to open each of them.
  void begin(const Place& place) {
    if (std::ranges::find(places_, place) != places_.end()) return;
    places_.push_back(place);
    const auto& torch = only<Torch>();
    if (place.is_device) torch.ours.attr("initialize")();
    if (torch.api == nullptr) return;
    std::vector<Tensor> same;
    std::ranges::copy_if(tensors_, std::back_inserter(same), [&](const auto& each) { return each.place() == place; });
    if (const auto stream = torch.api->dlpack_stream_at(place)) exports_.push_back(begin_exports(same, *stream));
  }

  nb::object sequence_;
  std::vector<Tensor> made_;
  std::span<const Tensor> tensors_;
  std::vector<Place> places_;
  std::vector<std::shared_ptr<void>> exports_;
};

// The messages that this thread writes and reads; null outside of one. Shared with an `open` in progress: it may run
// Python code, such as a finalizer, that reads another message.
thread_local Arrays* writing = nullptr;
thread_local HostRules rules;
thread_local std::shared_ptr<Incoming> reading;

void set_writing(Arrays* arrays, bool by_reference, std::uint64_t least_bytes) noexcept {
  writing = arrays;
  rules = {.by_reference = by_reference, .least_bytes = least_bytes};
}

void set_reading(nb::handle tensors) { reading = tensors.is_none() ? nullptr : std::make_shared<Incoming>(tensors); }

std::shared_ptr<Incoming> message() {
  if (reading == nullptr) {
    throw Error(Errc::invalid_argument, "cannot unpickle a tensor in shared memory outside of its message",
                "send it through a drover queue, pipe or task");
  }
  return reading;
}

// The index of the tensor in the message; nullopt if its library must look at it.
std::optional<std::size_t> add(nb::handle tensor) {
  const ExchangeApi* const api = writing == nullptr ? nullptr : ExchangeApi::find(tensor.type());
  if (api == nullptr) return std::nullopt;
  if (!is_described_by_dlpack(tensor)) {
    PyErr_Clear();
    return std::nullopt;
  }
  return writing->add_if_tensor(tensor, *api, rules);
}

// A reducer for pickles. `otherwise` reduces all other tensors.
nb::object reducer(const nb::object& open, const nb::object& otherwise) {
  return nb::cpp_function([open, otherwise](nb::handle tensor) -> nb::object {
    const CallsPython scope;
    if (const auto index = add(tensor)) return nb::make_tuple(open, nb::make_tuple(*index));
    return otherwise(tensor);
  });
}

}  // namespace

void bind_message_tensors(nb::module_& module) {
  module.def("set_writing", &set_writing, nb::arg("arrays").none(), nb::arg("by_reference") = false,
             nb::arg("least_bytes") = 0, "Set the arrays of the pickle in progress, and how it carries others.");
  module.def("set_reading", &set_reading, nb::arg("tensors").none(), "Set the tensors of the message being read.");
  module.def(
      "open_tensor",
      [](std::size_t index) {
        const CallsPython scope;
        return message()->open(index);
      },
      nb::arg("index"), "The tensor of the message being read as one of torch.");
  module.def("tensor_reducer", &reducer, nb::arg("open"), nb::arg("otherwise"), "A reducer for tensors of torch.");
}

}  // namespace drover::python
