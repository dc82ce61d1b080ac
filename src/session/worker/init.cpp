#include "drover/session/init.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "process/spawn/init_state.hpp"
#include "session/keeper/run_keeper.hpp"
#include "session/worker/entry_table.hpp"
#include "session/worker/program.hpp"
#include "session/worker/worker_role.hpp"

namespace drover {

void init(int argc, char** argv) {
  const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
  const std::string_view first = arguments.size() > 1 ? arguments[1] : "";
  if (!first.starts_with(kRoleArgument)) {
    EntryTable::instance().close();
    set_initialised();
    return;
  }
  const auto role = first.substr(kRoleArgument.size());
  // A worker exits normally; a keeper skips the program's destructors and exit handlers, which do not expect it.
  if (role == "worker") std::exit(run_worker(arguments));
  if (role == "keeper") ::_exit(run_keeper(argc, argv));
  fmt::print(stderr, "drover: '{}' is not a role; this program and its parent may use different versions of drover\n",
             first);
  std::exit(kWorkerMisused);
}

void init(const Program& program) {
  const auto is_path = [](const std::string& text) { return text.find('/') != std::string::npos; };
  require(is_path(program.executable) && is_path(program.keeper), "the executable of a program is not a path",
          "give a path with a '/', such as sys.executable; PATH is not searched");
  EntryTable::instance().close();
  set_start_command({.executable = program.executable, .arguments = program.arguments, .keeper = program.keeper});
  set_initialised();
}

int play_role(std::vector<std::string> arguments) {
  std::vector<char*> texts;
  texts.reserve(arguments.size());
  for (auto& argument : arguments) texts.push_back(argument.data());
  return run_worker(texts);
}

}  // namespace drover
