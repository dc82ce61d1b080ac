// drover probe-driver: hidden; run by the doctor in a separate process, where the driver may hang or crash.
#include <sys/prctl.h>

#include <csignal>
#include <memory>

#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "device_json.hpp"
#include "output.hpp"

namespace drover::cli {

void add_probe_driver(CLI::App& app, Run& run) {
  auto* const command =
      app.add_subcommand("probe-driver", "Query the driver and print its report as one line of JSON");
  command->group("");
  const auto skips_init = std::make_shared<bool>(false);  // shared with the callback, which outlives this function
  command->add_flag("--no-init", *skips_init, "Do not call cuInit");
  command->callback([skips_init, &run] {
    run = [skips_init] {
      // This process must not outlive a doctor that is killed while the driver hangs.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      write_output(dumped(to_json(inspect_driver(!*skips_init)), -1));
      return exit_good;
    };
  });
}

}  // namespace drover::cli
