// Sessions, the tensors kept in them, and the entry point of workers.
#include "drover/session/session.hpp"

#include "drover/base/version.hpp"
#include "drover/tensor/send.hpp"
#include "session/wire/session_folder.hpp"
#include "session/worker/program.hpp"
#include "session/worker/session_tie.hpp"
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

void keep_tensors(const PySession&, const std::string& name, nb::handle sequence) {
  const auto tensors = to_tensors(sequence);
  const Released free;
  keep_all(name, tensors);
}

nb::object recall_tensors(const PySession& self, const std::string& name) {
  auto tensors = [&] {
    const Released free;
    return recall_all(self.memory, name);
  }();
  return from_tensors(std::move(tensors));
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
        session::init(session::Program{.executable = executable, .arguments = arguments, .keeper = keeper});
      },
      nb::arg("executable"), nb::arg("arguments"), nb::arg("keeper"),
      "Set the commands that start workers and keepers.");
  module.def("close", &close_for_threads,
             "Stop all threads but the main one from returning to Python, before the interpreter ends.");
  module.def("play_role", &session::play_role, nb::arg("arguments"), nb::call_guard<Released>(),
             "Run a worker; return its exit status.");
}

}  // namespace

void bind_session(nb::module_& module) {
  module.def(
      "private_folder", [] { return session::SessionFolder::open().path(); },
      "The directory for sockets of this user, which no other user can enter; made if it is missing.");
  bind_program(module);
  nb::class_<PySession>(module, "Session", "This process as a participant of a session.")
      .def_static("start", &start, nb::arg("participant_name") = "", "Start a session without a name.")
      .def_static("open", &open, nb::arg("name"), nb::arg("participant_name") = "", "Join a named session.")
      .def_static("inherited", &inherited, "Join the session that this process was started in.")
      .def_prop_ro(
          "name", [](const PySession& self) { return self.session.name(); }, "The name; empty if it has none.")
      .def_prop_ro(
          "keeper_pid", [](const PySession& self) { return self.session.keeper_pid(); },
          "The pid of the keeper process.")
      .def_prop_ro(
          "incarnation", [](const PySession& self) { return self.session.incarnation(); },
          "The number of this process in the session, which is never reused.")
      .def(
          "participants", [](const PySession& self) { return describe_all(self.session.participants()); },
          "A description of each participant.")
      .def(
          "check", [](const PySession& self) { self.session.check(); }, "Raise PeerLost if the session has ended.")
      .def(
          "tie", [](const PySession& self) { session::tie_to_session(self.session); }, nb::call_guard<Released>(),
          "End this process when the keeper of the session or the process that started it has ended.")
      .def("invite", &invite, nb::arg("participant_name"), "Return a descriptor by which a child joins.")
      .def(
          "end", [](PySession& self) { self.session.end(); }, nb::call_guard<Released>(),
          "End the session for all participants.")
      .def("keep", &keep_tensors, nb::arg("name"), nb::arg("tensors"), "Keep tensors together under a name.")
      .def("recall", &recall_tensors, nb::arg("name"), "Return the tensors kept under a name.")
      .def(
          "kept", [](const PySession& self) { return describe_all(self.session.kept()); },
          "A description of what is kept under each name.")
      .def(
          "drop", [](PySession& self, const std::string& name) { self.session.drop(name); }, nb::arg("name"),
          nb::call_guard<Released>(), "Stop keeping what has this name.");
}

}  // namespace drover::python
