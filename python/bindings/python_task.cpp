#include "python_task.hpp"

#include <csignal>

#include "drover/base/error.hpp"
#include "drover/pool/stack_text.hpp"
#include "drover/pool/this_worker.hpp"
#include "plain.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

// What drover/_worker.py made known: how a function is made from its bytes, and objects from theirs and back.
struct WorkerFunctions {
  nb::object prepare;  // (function, tensors) -> (callable of one argument, number of the function's tensors, title)
  nb::object loads;    // (payload, tensors) -> object
  nb::object dumps;    // (object) -> (payload, tensors)
  nb::object fail;     // (exception) -> (payload, tensors)
  nb::object known;    // a dict: function -> what prepare gave, for those that are called again
};

// Never freed: a task may run while the interpreter ends.
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

Answer answer_with(nb::handle result) {
  if (!is_plain(result)) return to_answer(functions()->dumps(result), false);
  const nb::object made = pickled(result);
  const Bytes bytes(made);
  return {.payload = std::string(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size())};
}

nb::object prepared(const Packet& packet) {
  const nb::object key = to_bytes(packet.function);
  if (PyObject* const found = PyDict_GetItemWithError(functions()->known.ptr(), key.ptr())) return nb::borrow(found);
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return functions()->prepare(key, from_tensors(std::vector<Tensor>(packet.tensors)));
}

nb::object argument_of(const Packet& packet, std::size_t function_tensors) {
  if (packet.tensors.size() <= function_tensors) return unpickled(packet.payload);
  const auto own = std::span(packet.tensors).subspan(function_tensors);
  return functions()->loads(lent(packet.payload), from_tensors({own.begin(), own.end()}));
}

void show_title(nb::handle title) {
  Py_ssize_t bytes = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(title.ptr(), &bytes);
  if (text == nullptr) throw nb::python_error();
  this_worker().set_task_title({text, static_cast<std::size_t>(bytes)});
}

// faulthandler writes stacks without the interpreter's lock. It is made for handlers of signals; so its own is taken,
// and called by the one that a worker answers with.
void tell_stacks_by(int signal) {
  struct sigaction action{};
  if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
    throw Error(Errc::invalid_argument, "no handler that writes stacks is registered for this signal");
  }
  tell_stack_text(action.sa_handler, signal);
}

Answer run_with_lock(const Packet& packet) {
  try {
    const nb::object call = prepared(packet);
    show_title(call[2]);
    return answer_with(call[0](argument_of(packet, nb::cast<std::size_t>(call[1]))));
  } catch (const nb::python_error& error) {
    if (is_raised_for(Errc::cancelled, error.value())) this_worker().check_interrupt();  // told to stop, and did
    return to_answer(functions()->fail(error.value()), true);
  }
}

// An exception of Python needs the interpreter's lock wherever it goes; its text does not.
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

// Runs once in each worker, before its tasks: what it raises keeps the worker from becoming ready.
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
      [](nb::object prepare, nb::object loads, nb::object dumps, nb::object fail, nb::object known) {
        functions() = new WorkerFunctions{std::move(prepare), std::move(loads), std::move(dumps), std::move(fail),
                                          std::move(known)};
      },
      nb::arg("prepare"), nb::arg("loads"), nb::arg("dumps"), nb::arg("fail"), nb::arg("known"),
      "Say how tasks become calls, and results bytes.");
  module.def("stack_text_file", &stack_text_file, "The descriptor into which stacks are to be written.");
  module.def("tell_stacks_by", &tell_stacks_by, nb::arg("signal"),
             "Let the handler of this signal write stacks when somebody asks for this worker's.");
  nb::class_<PoolWorker>(module, "Worker", "This process as a worker of a pool.")
      .def_prop_ro("index", &PoolWorker::index, "Its number, from 0.")
      .def_prop_ro(
          "name", [](const PoolWorker& self) { return self.name(); }, "Its name: worker-2.")
      .def_prop_ro(
          "device", [](const PoolWorker& self) { return to_string(self.place()); },
          "Its device as it is numbered here, or cpu.")
      .def_prop_ro(
          "session", [](const PoolWorker& self) { return PySession(self.session(), self.memory()); },
          "The session of the pool.")
      .def(
          "set_title", [](PoolWorker& self, const std::string& title) { self.set_task_title(title); },
          nb::arg("title"), "What `drover ps` calls the task that runs.")
      .def_prop_ro("is_interrupted", &PoolWorker::is_interrupted, "Whether the task that runs shall stop.")
      .def("check_interrupt", &PoolWorker::check_interrupt, "Raise Cancelled if it shall.");
  module.def(
      "this_worker", []() -> PoolWorker& { return this_worker(); }, nb::rv_policy::reference,
      "This worker; raises NotFound anywhere else.");
}

}  // namespace drover::python
