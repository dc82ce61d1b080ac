// Translates drover::Error to the Python exception types that drover/_errors.py registers, one per code.
#include <exception>
#include <map>
#include <string>

#include "drover/base/error.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

// Exception types by the names of codes. Never freed: errors may be raised while the interpreter ends.
nb::dict& types() {
  static auto* const made = new nb::dict();
  return *made;
}

void raise(const Error& error) {
  const CallsPython scope;
  const nb::str name(to_string(error.code()).data(), to_string(error.code()).size());
  if (!types().contains(name)) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return;
  }
  const nb::object type = types()[name];
  const nb::object made = type(error.message(), error.remedy());
  PyErr_SetObject(type.ptr(), made.ptr());
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    raise(error);
  }
}

}  // namespace

bool is_raised_for(Errc code, nb::handle exception) {
  const nb::str name(to_string(code).data(), to_string(code).size());
  return types().contains(name) && PyErr_GivenExceptionMatches(exception.ptr(), nb::object(types()[name]).ptr()) != 0;
}

void bind_errors(nb::module_& module) {
  nb::register_exception_translator(translate);
  module.def(
      "set_error_types", [](const nb::dict& by_code) { types() = by_code; }, nb::arg("types"),
      "Set the exception type for each code.");
  nb::list codes;
  for (const Errc code : kAllErrc) codes.append(nb::str(to_string(code).data(), to_string(code).size()));
  module.attr("error_codes") = nb::tuple(codes);
}

}  // namespace drover::python
