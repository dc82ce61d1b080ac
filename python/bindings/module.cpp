// The compiled half of the Python package: mechanics only. The interface of Python programs is in python/drover.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "base/config.hpp"
#include "support.hpp"

NB_MODULE(_core, module) {
  using namespace drover::python;
  module.doc() = "The compiled half of drover, for the package's own modules.";
  module.def("environment_path", &drover::environment_path, nb::arg("name"),
             "The value of a variable that names a file; None in a program with more rights than its caller.");
  bind_errors(module);
  bind_plain(module);
  bind_tensor(module);
  bind_arrays(module);
  bind_message_tensors(module);
  bind_slabs(module);
  bind_session(module);
  bind_queue(module);
  bind_locks(module);
  bind_events(module);
  bind_child(module);
  bind_template(module);
  bind_worker(module);
  bind_pool(module);
}
