// Templates: processes with everything imported, from which children are forked; both sides of them.
#include "drover/process/template.hpp"

#include "process/template/template_server.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

// Its end waits for a process, and nobody else should.
class PyTemplate {
 public:
  PyTemplate(const std::string& executable, const std::vector<std::string>& arguments,
             const std::vector<std::pair<std::string, std::string>>& environment,
             const std::vector<std::vector<std::string>>& starts)
      : made_(std::make_unique<Template>(TemplateCommand{
            .executable = executable, .arguments = arguments, .environment = environment, .starts = starts})) {}
  PyTemplate(const PyTemplate&) = delete;
  PyTemplate& operator=(const PyTemplate&) = delete;
  ~PyTemplate() {
    const Released free;
    made_.reset();
  }

  [[nodiscard]] Template& made() const noexcept { return *made_; }

 private:
  std::unique_ptr<Template> made_;
};

bool wait_ready(PyTemplate& self, const Timeout& timeout) {
  return await(
      timeout, [&](Deadline deadline) { return self.made().wait_ready(deadline); },
      [](bool is_ready) { return is_ready; });
}

nb::list variables_of(const TemplateOrderTaken& self) {
  nb::list all;
  for (const auto& entry : self.variables()) all.append(nb::bytes(entry.data(), entry.size()));
  return all;
}

void bind_server(nb::module_& module) {
  nb::class_<TemplateOrderTaken>(module, "TemplateOrder", "A child that a template is to fork.")
      .def_prop_ro("start", &TemplateOrderTaken::start, "Which of the starts it is.")
      .def_prop_ro("arguments", &TemplateOrderTaken::arguments, "What comes after those of the start.")
      .def_prop_ro("variables", &variables_of, "Its environment.")
      .def(
          "refuse", [](TemplateOrderTaken& self, const std::string& why) { self.refuse(why); }, nb::arg("why"),
          "Say that there will be no such child.")
      .def("take_socket", &TemplateOrderTaken::take_socket, "The socket that tells of its end; the caller owns it.")
      .def("become", &TemplateOrderTaken::become, nb::arg("parent"), "Be that child, at once after the fork.");
  nb::class_<TemplateServer>(module, "TemplateServer", "Where a template gets its orders.")
      .def(nb::init<int>(), nb::arg("control"))
      .def(
          "say_ready", [](const TemplateServer& self, const std::string& notes) { self.say_ready(notes); },
          nb::arg("notes"), "Say that orders can come.")
      .def(
          "take",
          [](const TemplateServer& self) -> nb::object {
            auto order = self.take();
            return order ? nb::cast(std::move(*order)) : nb::none();
          },
          nb::sig("def take(self) -> TemplateOrder | None"), "The next order, if there is one now.");
  module.attr("template_control") = kTemplateControl;
  module.attr("template_application") = kTemplateApplication;
}

}  // namespace

void bind_template(nb::module_& module) {
  nb::class_<PyTemplate>(module, "Template", "A process from which children are forked.")
      .def(nb::init<const std::string&, const std::vector<std::string>&,
                    const std::vector<std::pair<std::string, std::string>>&,
                    const std::vector<std::vector<std::string>>&>(),
           nb::arg("executable"), nb::arg("arguments"), nb::arg("environment"), nb::arg("starts"))
      .def(
          "use", [](PyTemplate& self) { self.made().use(); }, "Fork from it what it can stand for.")
      .def_static("use_none", &Template::use_none, "Start every process anew.")
      .def(
          "start", [](PyTemplate& self) { self.made().start(); }, nb::call_guard<Released>(),
          "Start it, if it does not run.")
      .def("wait_ready", &wait_ready, nb::arg("timeout").none(), "Start it and wait until it is ready.")
      .def(
          "retire", [](PyTemplate& self) { self.made().retire(); }, "Let it end once its children have.")
      .def(
          "end", [](PyTemplate& self) { self.made().end(); }, nb::call_guard<Released>(), "Kill it.")
      .def_prop_ro(
          "notes", [](const PyTemplate& self) { return self.made().notes(); }, "What it left out, and why.")
      .def_prop_ro(
          "pid", [](const PyTemplate& self) { return self.made().pid(); }, "Its process id; 0 if it does not run.")
      .def_prop_ro(
          "forks", [](const PyTemplate& self) { return self.made().forks(); }, "How many children it has forked.")
      .def_prop_ro(
          "fits", [](const PyTemplate& self) { return self.made().fits(); },
          "Whether this process is still as it was when the template was started.")
      .def_prop_ro("is_over", [](const PyTemplate& self) { return self.made().is_over(); }, "Whether it has ended.");
  bind_server(module);
}

}  // namespace drover::python
