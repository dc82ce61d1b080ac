#include "drover/session/init.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "process/init_state.hpp"
#include "session/entry_table.hpp"
#include "session/keeper.hpp"
#include "session/worker_role.hpp"

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
  // A worker ends as any program does; of a keeper the program's own globals and exit handlers know nothing.
  if (role == "worker") std::exit(run_worker(arguments));
  if (role == "keeper") ::_exit(run_keeper(argc, argv));
  fmt::print(stderr,
             "drover: '{}' is no role of a process; this program and its parent may be of different versions\n",
             first);
  std::exit(kWorkerMisused);
}

}  // namespace drover
