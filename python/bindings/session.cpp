// Sessions, the tensors they keep, and the role of a worker.
#include "drover/session/session.hpp"

#include "drover/base/version.hpp"
#include "drover/tensor/keep.hpp"
#include "session/worker/program.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

SessionOptions options_of(const std::string& participant_name) {
  SessionOptions options;
  options.participant_name = participant_name;
  return options;
}

nb::dict describe(const KeptInfo& kept) {
  nb::dict info;
  info["name"] = kept.name;
  info["description"] = kept.description;
  info["bytes"] = kept.bytes;
  return info;
}

nb::dict describe(const ParticipantInfo& participant) {
  nb::dict info;
  info["name"] = participant.name;
  info["pid"] = participant.pid;
  info["incarnation"] = participant.incarnation;
  info["is_worker"] = participant.is_worker;
  return info;
}

template <class Infos>
nb::list describe_all(const Infos& infos) {
  nb::list all;
  for (const auto& info : infos) all.append(describe(info));
  return all;
}

int invite(PySession& self, const std::string& participant_name) {
  const Released free;
  return self.session.invite(participant_name).release();
}

PySession start(const std::string& participant_name) {
  const Released free;
  return PySession(Session::start(options_of(participant_name)));
}

PySession open(const std::string& name, const std::string& participant_name) {
  const Released free;
  return PySession(Session::open(name, options_of(participant_name)));
}

PySession inherited() {
  const Released free;
  return PySession(Session::inherited());
}

void bind_program(nb::module_& module) {
  module.attr("version") = std::string(version());
  module.def(
      "init",
      [](const std::string& executable, const std::vector<std::string>& arguments, const std::string& keeper) {
        init(Program{.executable = executable, .arguments = arguments, .keeper = keeper});
      },
      nb::arg("executable"), nb::arg("arguments"), nb::arg("keeper"), "Say how workers and keepers are started.");
  module.def("close", &close_for_threads,
             "Let no thread but the main one come back from a wait: the interpreter ends.");
  module.def("play_role", &play_role, nb::arg("arguments"), nb::call_guard<Released>(),
             "Do the work of a worker; return its exit status.");
}

}  // namespace

void bind_session(nb::module_& module) {
  bind_program(module);
  nb::class_<PySession>(module, "Session", "This process as a participant of a session.")
      .def_static("start", &start, nb::arg("participant_name") = "", "Start a session without a name.")
      .def_static("open", &open, nb::arg("name"), nb::arg("participant_name") = "", "Join a named session.")
      .def_static("inherited", &inherited, "The session into which this process was started.")
      .def_prop_ro(
          "name", [](const PySession& self) { return self.session.name(); }, "Its name, or an empty text.")
      .def_prop_ro(
          "keeper_pid", [](const PySession& self) { return self.session.keeper_pid(); }, "The process that keeps it.")
      .def_prop_ro(
          "incarnation", [](const PySession& self) { return self.session.incarnation(); },
          "The number of this process in it, never given to another.")
      .def(
          "participants", [](const PySession& self) { return describe_all(self.session.participants()); },
          "Who takes part.")
      .def(
          "check", [](const PySession& self) { self.session.check(); }, "Raise PeerLost if it is over.")
      .def("invite", &invite, nb::arg("participant_name"), "A descriptor through which a child joins.")
      .def(
          "end", [](PySession& self) { self.session.end(); }, nb::call_guard<Released>(), "End it for everybody.")
      .def(
          "keep", [](PySession&, const std::string& name, const Tensor& tensor) { keep(name, tensor); },
          nb::arg("name"), nb::arg("tensor"), nb::call_guard<Released>(), "Keep a tensor.")
      .def(
          "recall", [](PySession& self, const std::string& name) { return recall(self.memory, name); },
          nb::arg("name"), nb::call_guard<Released>(), "A tensor that was kept.")
      .def(
          "kept", [](const PySession& self) { return describe_all(self.session.kept()); }, "What is kept.")
      .def(
          "drop", [](PySession& self, const std::string& name) { self.session.drop(name); }, nb::arg("name"),
          nb::call_guard<Released>(), "Keep it no longer.");
}

}  // namespace drover::python
