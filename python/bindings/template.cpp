// Templates: processes that have modules imported and fork children. Both sides: the application and the template.
#include "process/template/template.hpp"

#include "process/template/running_template.hpp"
#include "process/template/template_server.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

// Releases the GIL in its destructor, which waits for a process.
class PyTemplate {
 public:
  PyTemplate(const std::string& executable, const std::vector<std::string>& arguments,
             const std::vector<std::pair<std::string, std::string>>& environment,
             const std::vector<std::vector<std::string>>& starts)
      : made_(std::make_unique<process::Template>(process::TemplateCommand{
            .executable = executable, .arguments = arguments, .environment = environment, .starts = starts})) {}
  PyTemplate(const PyTemplate&) = delete;
  PyTemplate& operator=(const PyTemplate&) = delete;
  ~PyTemplate() {
    const Released free;
    made_.reset();
  }

  [[nodiscard]] process::Template& made() const noexcept { return *made_; }

 private:
  std::unique_ptr<process::Template> made_;
};

// A template process that no Template has adopted yet.
class PyEarlyTemplate {
 public:
  PyEarlyTemplate(const std::string& executable, const std::vector<std::string>& arguments,
                  const std::vector<std::pair<std::string, std::string>>& environment)
      : running_(std::make_shared<process::RunningTemplate>(process::TemplateCommand{.executable = executable,
                                                                                     .arguments = arguments,
                                                                                     .environment = environment,
                                                                                     .starts = {},
                                                                                     .is_detached = true})) {}

  [[nodiscard]] const std::shared_ptr<process::RunningTemplate>& running() const noexcept { return running_; }

 private:
  std::shared_ptr<process::RunningTemplate> running_;
};

process::Readiness wait_ready(PyTemplate& self, const Timeout& timeout) {
  return await(
      timeout, [&](Deadline deadline) { return self.made().wait_ready(deadline); },
      [](process::Readiness found) { return found != process::Readiness::loading; });
}

nb::list variables_of(const process::TemplateOrderTaken& self) {
  nb::list all;
  for (const auto& entry : self.variables()) all.append(nb::bytes(entry.data(), entry.size()));
  return all;
}

void bind_server(nb::module_& module) {
  nb::class_<process::TemplateOrderTaken>(module, "TemplateOrder", "A request to fork a child.")
      .def_prop_ro("start", &process::TemplateOrderTaken::start, "The index of its start command.")
      .def_prop_ro("arguments", &process::TemplateOrderTaken::arguments,
                   "The arguments after those of the start command.")
      .def_prop_ro("variables", &variables_of, "The environment of the child.")
      .def(
          "refuse", [](process::TemplateOrderTaken& self, const std::string& why) { self.refuse(why); },
          nb::arg("why"), "Answer that the child will not be forked.")
      .def(
          "forward", [](const process::TemplateOrderTaken& self, int socket) { return self.forward(socket); },
          nb::arg("socket"), "Hand it to a process that waits for an order; False if that has ended.")
      .def("take_socket", &process::TemplateOrderTaken::take_socket,
           "Return the socket to report the child's end on; the caller owns it.")
      .def("become", &process::TemplateOrderTaken::become, nb::arg("parent"),
           "Set up the child, right after the fork.");
  nb::class_<process::TemplateServer>(module, "TemplateServer", "Receives the orders of a template.")
      .def(nb::init<int>(), nb::arg("control"))
      .def(
          "await_word",
          [](const process::TemplateServer& self, const Timeout& timeout) {
            return self.await_word(to_deadline(timeout));
          },
          nb::arg("timeout").none(), nb::call_guard<Released>(),
          "Return the next text of EarlyTemplate.tell, or None at the timeout.")
      .def(
          "say_ready", [](const process::TemplateServer& self, const std::string& notes) { self.say_ready(notes); },
          nb::arg("notes"), "Report that the template is ready for orders.")
      .def(
          "take",
          [](const process::TemplateServer& self) -> nb::object {
            auto order = self.take();
            return order ? nb::cast(std::move(*order)) : nb::none();
          },
          nb::sig("def take(self) -> TemplateOrder | None"), "Return the next order, or None if there is none now.");
  module.attr("template_control") = process::kTemplateControl;
  module.attr("template_application") = process::kTemplateApplication;
}

void bind_early(nb::module_& module) {
  nb::class_<PyEarlyTemplate>(module, "EarlyTemplate",
                              "A template process that is nobody's child and has no user yet.")
      .def(nb::init<const std::string&, const std::vector<std::string>&,
                    const std::vector<std::pair<std::string, std::string>>&>(),
           nb::arg("executable"), nb::arg("arguments"), nb::arg("environment"))
      .def(
          "tell", [](const PyEarlyTemplate& self, const std::string& text) { return self.running()->tell(text); },
          nb::arg("text"), "Send it a text; False if it has ended.")
      .def_prop_ro(
          "pid", [](const PyEarlyTemplate& self) { return self.running()->pid(); }, "The process id.")
      .def_prop_ro(
          "fits", [](const PyEarlyTemplate& self) { return self.running()->fits(); },
          "Whether this process still matches it.")
      .def_prop_ro(
          "has_ended", [](const PyEarlyTemplate& self) { return self.running()->has_ended(); },
          "Whether it has ended.");
}

}  // namespace

void bind_template(nb::module_& module) {
  nb::enum_<process::Readiness>(module, "Readiness", "Whether a template can fork children.")
      .value("ready", process::Readiness::ready, "Now.")
      .value("loading", process::Readiness::loading, "Not yet.")
      .value("unavailable", process::Readiness::unavailable, "Never.");
  bind_early(module);
  nb::class_<PyTemplate>(module, "Template", "A process that forks children.")
      .def(nb::init<const std::string&, const std::vector<std::string>&,
                    const std::vector<std::pair<std::string, std::string>>&,
                    const std::vector<std::vector<std::string>>&>(),
           nb::arg("executable"), nb::arg("arguments"), nb::arg("environment"), nb::arg("starts"))
      .def(
          "use", [](PyTemplate& self) { self.made().use(); }, "Fork processes from this template where possible.")
      .def(
          "adopt", [](PyTemplate& self, const PyEarlyTemplate& early) { self.made().adopt(early.running()); },
          nb::arg("early"), "Use a process that was started before.")
      .def_static("use_none", &process::Template::use_none, "Start all processes as new interpreters.")
      .def(
          "start", [](PyTemplate& self) { self.made().start(); }, nb::call_guard<Released>(),
          "Start the template if it is not running.")
      .def("wait_ready", &wait_ready, nb::arg("timeout").none(),
           "Start the template and wait until it is ready or never will be.")
      .def(
          "retire", [](PyTemplate& self) { self.made().retire(); }, "End the template once its children have ended.")
      .def(
          "end", [](PyTemplate& self) { self.made().end(); }, nb::call_guard<Released>(), "Kill the template.")
      .def_prop_ro(
          "notes", [](const PyTemplate& self) { return self.made().notes(); },
          "The modules that it left out, and why.")
      .def_prop_ro(
          "pid", [](const PyTemplate& self) { return self.made().pid(); }, "The pid; 0 if it is not running.")
      .def_prop_ro(
          "forks", [](const PyTemplate& self) { return self.made().forks(); },
          "The number of children it has forked.")
      .def_prop_ro(
          "fits", [](const PyTemplate& self) { return self.made().fits(); },
          "Whether this process still matches the template.")
      .def_prop_ro("is_over", [](const PyTemplate& self) { return self.made().is_over(); }, "Whether it has ended.");
  bind_server(module);
}

}  // namespace drover::python
