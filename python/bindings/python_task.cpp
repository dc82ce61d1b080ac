#include "python_task.hpp"

#include <csignal>

#include "drover/base/error.hpp"
#include "drover/pool/this_worker.hpp"
#include "plain.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

// The functions that drover/_worker.py registers.
struct WorkerFunctions {
  nb::object prepare;   // (function, tensors) -> (callable of one argument, number of the function's tensors, title)
  nb::object loads;     // (payload, tensors) -> object
  nb::object dumps;     // (object) -> (payload, tensors)
  nb::object fail;      // (exception) -> (payload, tensors)
  nb::object prepared;  // a dict: function -> the cached result of prepare
};

// Never freed: tasks may still run while the interpreter ends.
WorkerFunctions*& functions() {
  static WorkerFunctions* made = nullptr;
  return made;
}

Answer to_answer(nb::handle pair, bool is_error) {
  Answer answer{.is_error = is_error};
  const Bytes payload(pair[0]);
  answer.payload.assign(reinterpret_cast<const char*>(payload.bytes().data()), payload.bytes().size());
  answer.tensors = to_tensors(pair[1]);
  return answer;
}

Answer answer_of(nb::handle result) {
  Pickled pickled = to_message(result, this_worker().memory(), functions()->dumps);
  const Bytes bytes(pickled.payload);
  return {.payload = std::string(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()),
          .tensors = std::move(pickled.tensors)};
}

nb::object prepared(const Packet& packet) {
  const nb::object key = to_bytes(packet.function);
  if (PyObject* const found = PyDict_GetItemWithError(functions()->prepared.ptr(), key.ptr()))
    return nb::borrow(found);
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return functions()->prepare(key, from_tensors(std::vector<Tensor>(packet.tensors)));
}

nb::object argument_of(const Packet& packet, std::size_t function_tensors) {
  if (packet.tensors.size() <= function_tensors) return unpickled(packet.payload);
  const auto own = std::span(packet.tensors).subspan(function_tensors);
  return functions()->loads(view_or_copy(packet.payload), from_tensors({own.begin(), own.end()}));
}

void show_title(nb::handle title) {
  Py_ssize_t bytes = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(title.ptr(), &bytes);
  if (text == nullptr) throw nb::python_error();
  this_worker().set_task_title({text, static_cast<std::size_t>(bytes)});
}

// faulthandler can write stacks without the GIL, but only from its own signal handler. This takes that handler, and
// the worker's handler calls it.
void write_stacks_by(int signal) {
  struct sigaction action{};
  if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
    throw Error(Errc::invalid_argument, "faulthandler is not registered for this signal");
  }
  set_stack_text_writer(action.sa_handler, signal);
}

Answer run_with_lock(const Packet& packet) {
  try {
    const nb::object call = prepared(packet);
    show_title(call[2]);
    return answer_of(call[0](argument_of(packet, nb::cast<std::size_t>(call[1]))));
  } catch (const nb::python_error& error) {
    if (is_raised_for(Errc::cancelled, error.value())) this_worker().check_interrupt();  // asked to stop, and did
    return to_answer(functions()->fail(error.value()), true);
  }
}

// A python_error needs the GIL wherever it is copied or destroyed, so only its text leaves this function.
Answer run(const Packet& packet) {
  std::string failure;
  {
    const nb::gil_scoped_acquire lock;
    try {
      return run_with_lock(packet);
    } catch (const nb::python_error& error) {
      failure = error.what();
    }
  }
  throw Error(Errc::task_failed, failure);
}

const Task<Answer(Packet)> registered = task("python", [](const Packet& packet) { return run(packet); });

// Runs once in each worker, before its tasks. If it raises, the worker does not become ready.
void start_worker(const Packet& packet) {
  std::string failure;
  {
    const nb::gil_scoped_acquire lock;
    try {
      nb::module_::import_("drover._worker")
          .attr("start")(to_bytes(packet.payload), from_tensors(std::vector<Tensor>(packet.tensors)));
      return;
    } catch (const nb::python_error& error) {
      failure = error.what();
    }
  }
  throw Error(Errc::task_failed, failure);
}

const Task<void(Packet)> start_registered =
    task("python start", [](const Packet& packet) { return start_worker(packet); });

}  // namespace

const Task<Answer(Packet)>& python_task() { return registered; }
const Task<void(Packet)>& python_start_task() { return start_registered; }

void bind_worker(nb::module_& module) {
  module.def(
      "set_worker_functions",
      [](nb::object prepare, nb::object loads, nb::object dumps, nb::object fail, nb::object prepared) {
        functions() = new WorkerFunctions{std::move(prepare), std::move(loads), std::move(dumps), std::move(fail),
                                          std::move(prepared)};
      },
      nb::arg("prepare"), nb::arg("loads"), nb::arg("dumps"), nb::arg("fail"), nb::arg("prepared"),
      "Set the functions that turn tasks into calls and results into bytes.");
  module.def("stack_text_file", &stack_text_file, "The descriptor for faulthandler to write stacks to.");
  module.def("write_stacks_by", &write_stacks_by, nb::arg("signal"),
             "Write the stacks of this worker with the handler of this signal.");
  nb::class_<PoolWorker>(module, "Worker", "This process as a worker of a pool.")
      .def_prop_ro("index", &PoolWorker::index, "The index of the worker, from 0.")
      .def_prop_ro(
          "name", [](const PoolWorker& self) { return self.name(); }, "The name of the worker, such as worker-2.")
      .def_prop_ro(
          "device", [](const PoolWorker& self) { return to_string(self.place()); },
          "The device of the worker, as numbered in this process, or cpu.")
      .def_prop_ro(
          "session", [](const PoolWorker& self) { return PySession(self.session(), self.memory()); },
          "The session of the pool.")
      .def(
          "set_title", [](PoolWorker& self, const std::string& title) { self.set_task_title(title); },
          nb::arg("title"), "Set the name of the running task in `drover ps`.")
      .def_prop_ro("is_interrupted", &PoolWorker::is_interrupted, "Whether the running task is asked to stop.")
      .def("check_interrupt", &PoolWorker::check_interrupt, "Raise Cancelled if the running task is asked to stop.");
  module.def(
      "this_worker", []() -> PoolWorker& { return this_worker(); }, nb::rv_policy::reference,
      "Return this worker; raises NotFound in any other process.");
}

}  // namespace drover::python
