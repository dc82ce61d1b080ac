// cli/commands.hpp: the commands, one file each.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace drover::cli {

/// What the tool returns to the shell.
enum Exit : int {
  exit_good = 0,        ///< done; the doctor found no failure
  exit_failure = 1,     ///< the doctor found a failure
  exit_usage = 2,       ///< the command line is wrong
  exit_unfinished = 3,  ///< an error stopped the command
};

/// The work of the chosen command; set by parsing.
using Run = std::function<Exit()>;

// Each adds a command to `app`. Parsing that command sets `run`, which must outlive the parsing.
void add_devices(CLI::App& app, Run& run);
void add_doctor(CLI::App& app, Run& run);
void add_probe_driver(CLI::App& app, Run& run);
void add_ps(CLI::App& app, Run& run);
void add_session(CLI::App& app, Run& run);

}  // namespace drover::cli
