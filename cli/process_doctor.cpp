#include "process_doctor.hpp"

#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "device_json.hpp"
#include "drover/base/version.hpp"
#include "observe/process_doctor.hpp"
#include "output.hpp"

namespace drover::cli {
namespace {

Colour colour_of(Severity severity) {
  switch (severity) {
    case Severity::failure: return Colour::red;
    case Severity::warning: return Colour::yellow;
    case Severity::note: return Colour::blue;
    case Severity::ok: break;
  }
  return Colour::green;
}

std::string finding_text(const Finding& finding, const std::string& indent, bool is_colour_wanted) {
  const auto word = coloured(to_string(finding.severity), colour_of(finding.severity), is_colour_wanted);
  auto text = fmt::format("{}{} {}: {}\n", indent, word, finding.id, finding.summary);
  if (!finding.remedy.empty()) text += fmt::format("{}  remedy: {}\n", indent, finding.remedy);
  return text;
}

std::string process_text(const observe::ProcessDiagnosis& process, std::size_t depth, bool is_colour_wanted) {
  const std::string indent(2 * depth, ' ');
  auto text = fmt::format("{}process {}: {}\n{}  {}\n", indent, process.pid, process.command, indent, process.state);
  if (!process.gpu.empty()) text += fmt::format("{}  {}\n", indent, process.gpu);
  for (const auto& finding : process.findings) text += finding_text(finding, indent + "  ", is_colour_wanted);
  for (const auto& line : process.python) text += fmt::format("{}    {}\n", indent, line);
  if (!process.stack_problem.empty()) text += fmt::format("{}  stack: none; {}\n", indent, process.stack_problem);
  for (const auto& line : process.stack) text += fmt::format("{}    {}\n", indent, line);
  return text;
}

std::string as_text(const observe::TreeDiagnosis& tree) {
  const bool is_colour_wanted = wants_colour();
  std::string text;
  std::map<pid_t, std::size_t> depths;
  for (const auto& process : tree.processes) {
    const auto parent = depths.find(process.parent);
    const auto depth = parent == depths.end() ? 0 : parent->second + 1;
    depths[process.pid] = depth;
    text += process_text(process, depth, is_colour_wanted);
  }
  if (tree.left_out > 0) text += fmt::format("{} more descendants were not checked\n", tree.left_out);
  for (const auto& pool : tree.pools) text += "\n" + pool;
  const char* const verdict = tree.verdict == Severity::failure   ? "Something is stuck"
                              : tree.verdict == Severity::warning ? "Something looks wrong"
                                                                  : "Nothing looks stuck";
  return text + "\n" + coloured(verdict, colour_of(tree.verdict), is_colour_wanted) + "\n";
}

std::string as_json(const observe::TreeDiagnosis& tree) {
  const auto text = [](const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); };
  auto processes = Json::array();
  for (const auto& process : tree.processes) {
    auto findings = Json::array();
    for (const auto& finding : process.findings) {
      findings.push_back({{"id", finding.id},
                          {"severity", to_string(finding.severity)},
                          {"summary", finding.summary},
                          {"remedy", text(finding.remedy)}});
    }
    processes.push_back({{"pid", process.pid},
                         {"parent", process.parent},
                         {"command", process.command},
                         {"state", process.state},
                         {"gpu", text(process.gpu)},
                         {"findings", std::move(findings)},
                         {"python", process.python},
                         {"stack", process.stack},
                         {"stack_problem", text(process.stack_problem)}});
  }
  return dumped({{"version", version_details()},
                 {"verdict", to_string(tree.verdict)},
                 {"processes", std::move(processes)},
                 {"left_out", tree.left_out},
                 {"pools", tree.pools}},
                2);
}

}  // namespace

Severity run_process_doctor(const ProcessDoctorRequest& request) {
  observe::ProcessDoctorOptions options;
  options.has_stacks = request.has_stacks;
  options.time_for_stacks = request.limit;
  const auto tree = observe::examine_process_tree(request.pid, options);
  write_output(request.is_json ? as_json(tree) : as_text(tree));
  return tree.verdict;
}

}  // namespace drover::cli
