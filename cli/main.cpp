// drover: the command-line tool. Each command has its own file; see commands.hpp.
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "drover/base/version.hpp"
#include "drover/session/worker.hpp"
#include "output.hpp"

namespace drover::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  drover devices               the devices that programs on this machine will use, and why
  drover devices --json        the same as JSON
  drover doctor                problems of GPUs, driver and limits, with their remedies
  drover ps                    pools, and what their workers do
  drover doctor --pid PID      what a process and its descendants wait for
  drover session list          named sessions

Exit status:
  0  done (doctor: no failure, though there may be warnings)
  1  doctor: at least one failure
  2  the command line is wrong
  3  an error stopped the command; it is on standard error)";

int run_named_command(int argc, char** argv) {
  CLI::App app("Drives many processes and their GPUs as one herd.", "drover");
  Run run;
  app.set_version_flag("--version,-V", std::string(version_details()), "Print the version and exit");
  app.footer(kFooter);
  app.require_subcommand(0, 1);
  add_devices(app, run);
  add_doctor(app, run);
  add_ps(app, run);
  add_session(app, run);
  add_probe_driver(app, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& stop) {
    return app.exit(stop) == 0 ? exit_good : exit_usage;
  }
  if (run) return run();
  fmt::print(stderr, "{}", app.help());
  return exit_usage;
}

}  // namespace
}  // namespace drover::cli

int main(int argc, char** argv) {
  // A reader that is gone is handled when writing; SIGPIPE must not end the doctor before its exit status is known.
  static_cast<void>(std::signal(SIGPIPE, SIG_IGN));  // NOLINT(performance-no-int-to-ptr): SIG_IGN is defined so
  try {
    drover::init(argc, argv);  // if other programs name it in DROVER_KEEPER, the tool is their keeper
    return drover::cli::run_named_command(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "drover: {}\n", error.what());
    return drover::cli::exit_unfinished;
  }
}
