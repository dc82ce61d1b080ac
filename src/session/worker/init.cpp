#include "drover/session/worker.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "process/spawn/init_state.hpp"
#include "session/keeper/run_keeper.hpp"
#include "session/worker/entry_table.hpp"
#include "session/worker/worker_role.hpp"

namespace drover {

void init(int argc, char** argv) {
  const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
  const std::string_view first = arguments.size() > 1 ? arguments[1] : "";
  if (!first.starts_with(session::kRoleArgument)) {
    session::EntryTable::instance().close();
    process::set_initialised();
    return;
  }
  const auto role = first.substr(session::kRoleArgument.size());
  // A worker exits normally; a keeper skips the program's destructors and exit handlers, which do not expect it.
  if (role == "worker") std::exit(session::run_worker(arguments));
  if (role == "keeper") ::_exit(session::run_keeper(argc, argv));
  fmt::print(stderr, "drover: '{}' is not a role; this program and its parent may use different versions of drover\n",
             first);
  std::exit(session::kWorkerMisused);
}

}  // namespace drover
