#include "session/worker/program.hpp"

#include "drover/base/error.hpp"
#include "process/spawn/init_state.hpp"
#include "process/spawn/spawner.hpp"
#include "session/worker/entry_table.hpp"
#include "session/worker/worker_role.hpp"

namespace drover::session {

void init(const Program& program) {
  const auto is_path = [](const std::string& text) { return text.find('/') != std::string::npos; };
  require(is_path(program.executable) && is_path(program.keeper), "the executable of a program is not a path",
          "give a path with a '/', such as sys.executable; PATH is not searched");
  EntryTable::instance().close();
  process::set_start_command(
      {.executable = program.executable, .arguments = program.arguments, .keeper = program.keeper});
  process::set_initialised();
}

int play_role(std::vector<std::string> arguments) {
  std::vector<char*> texts;
  texts.reserve(arguments.size());
  for (auto& argument : arguments) texts.push_back(argument.data());
  return run_worker(texts);
}

bool start_would_wait() {
  const auto spawner = process::current_spawner();
  if (!spawner) return false;
  const process::StartCommand command = process::start_command();
  return spawner->would_wait({.executable = command.executable, .arguments = command.arguments});
}

}  // namespace drover::session
