// drover doctor: problems of GPUs, driver and limits, with their remedies.
#include "drover/observe/doctor.hpp"

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <ranges>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "device_json.hpp"
#include "driver_probe.hpp"
#include "drover/base/version.hpp"
#include "output.hpp"
#include "process_doctor.hpp"

namespace drover::cli {
namespace {

struct DoctorOptions {
  bool is_json = false;
  double timeout = 30.0;  // seconds
  pid_t pid = 0;          // 0: the machine
  bool has_no_stacks = false;
};

struct Diagnosis {
  std::vector<Finding> findings;
  Severity verdict = Severity::ok;
};

std::chrono::milliseconds limit_of(const DoctorOptions& options) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(options.timeout));
}

Diagnosis examine(const DoctorOptions& options) {
  auto probe = probe_driver(limit_of(options));
  Diagnosis diagnosis{diagnose(collect_facts(std::move(probe)))};
  diagnosis.verdict = worst(diagnosis.findings);
  return diagnosis;
}

struct Group {
  const char* heading;
  const char* one;
  Colour colour;
};

Group group_of(Severity severity) {
  switch (severity) {
    case Severity::failure: return {"Failures", "failure", Colour::red};
    case Severity::warning: return {"Warnings", "warning", Colour::yellow};
    case Severity::note: return {"Notes", "note", Colour::blue};
    case Severity::ok: break;
  }
  return {"Passed", "check passed", Colour::green};
}

std::size_t count_of(const Diagnosis& diagnosis, Severity severity) {
  return static_cast<std::size_t>(std::ranges::count(diagnosis.findings, severity, &Finding::severity));
}

std::string group_text(const Diagnosis& diagnosis, Severity severity, bool is_colour_wanted) {
  const auto group = group_of(severity);
  auto text = coloured(group.heading, group.colour, is_colour_wanted) + "\n";
  for (const auto& finding : diagnosis.findings) {
    if (finding.severity != severity) continue;
    text += fmt::format("  {}: {}\n", finding.id, finding.summary);
    if (!finding.remedy.empty()) text += fmt::format("    remedy: {}\n", finding.remedy);
  }
  return text + "\n";
}

std::string verdict_text(const Diagnosis& diagnosis, bool is_colour_wanted) {
  const auto counted = [&](Severity severity) {
    const auto count = count_of(diagnosis, severity);
    return fmt::format("{} {}{}", count, group_of(severity).one, count == 1 ? "" : "s");
  };
  const auto colour = group_of(diagnosis.verdict).colour;
  const char* const word = diagnosis.verdict == Severity::failure ? "Not ready" : "Ready";
  return fmt::format("{}: {}, {}\n", coloured(word, colour, is_colour_wanted), counted(Severity::failure),
                     counted(Severity::warning));
}

std::string as_text(const Diagnosis& diagnosis) {
  const bool is_colour_wanted = wants_colour();
  std::string text;
  for (const auto severity : kAllSeverities | std::views::reverse) {
    if (count_of(diagnosis, severity) > 0) text += group_text(diagnosis, severity, is_colour_wanted);
  }
  return text + verdict_text(diagnosis, is_colour_wanted);
}

std::string as_json(const Diagnosis& diagnosis) {
  auto findings = Json::array();
  for (const auto& finding : diagnosis.findings) {
    findings.push_back({{"id", finding.id},
                        {"severity", to_string(finding.severity)},
                        {"summary", finding.summary},
                        {"remedy", finding.remedy.empty() ? Json(nullptr) : Json(finding.remedy)}});
  }
  return dumped(
      {{"version", version_details()}, {"verdict", to_string(diagnosis.verdict)}, {"findings", std::move(findings)}},
      2);
}

constexpr const char* kDoctorFooter =
    R"(Checks the PCI bus, the kernel module, the driver's libraries, the initialisation of CUDA (in a separate process,
since a faulty GPU can hang it), settings that hide or share GPUs, and the limits on shared memory, open files and
memory. Every warning and failure has a remedy. Nothing is changed.

With --pid it checks a process and its descendants instead, whether or not they use drover: which ones are stopped,
stuck in the kernel, forked after CUDA was initialised, or waiting for a process that is gone.

Examples:
  drover doctor
  drover doctor --json | jq '.findings[] | select(.severity == "failure")'
  drover doctor && ./train              start only if nothing fails
  drover doctor --pid 1234              what process 1234 and its descendants wait for, with native stacks)";

}  // namespace

void add_doctor(CLI::App& app, Run& run) {
  auto* const command = app.add_subcommand("doctor", "Find problems of GPUs, driver and limits, with their remedies");
  const auto options = std::make_shared<DoctorOptions>();  // shared with the callback, which outlives this function
  command->add_flag("--json", options->is_json, "Print JSON");
  command->add_option("--timeout", options->timeout, "Seconds to wait for the driver, or for stacks")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_option("--pid", options->pid, "Check this process and its descendants")->check(CLI::PositiveNumber);
  command->add_flag("--no-stacks", options->has_no_stacks, "With --pid: do not attach a debugger");
  command->footer(kDoctorFooter);
  command->callback([options, &run] {
    run = [options] {
      if (options->pid != 0) {
        const auto verdict = run_process_doctor({.pid = options->pid,
                                                 .is_json = options->is_json,
                                                 .has_stacks = !options->has_no_stacks,
                                                 .limit = limit_of(*options)});
        return verdict == Severity::failure ? exit_failure : exit_good;
      }
      const auto diagnosis = examine(*options);
      write_output(options->is_json ? as_json(diagnosis) : as_text(diagnosis));
      return diagnosis.verdict == Severity::failure ? exit_failure : exit_good;
    };
  });
}

}  // namespace drover::cli
