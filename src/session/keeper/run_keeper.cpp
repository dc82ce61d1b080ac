#include "session/keeper/run_keeper.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <string>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/process/child_process.hpp"
#include "process/spawn/line_writer.hpp"
#include "process/spawn/standard_streams.hpp"
#include "session/keeper/keeper.hpp"
#include "session/keeper/keeper_arguments.hpp"
#include "session/wire/connection.hpp"
#include "session/wire/protocol.hpp"

namespace drover::session {
namespace {

constexpr off_t kMostLogBytes = off_t{1} << 20U;

// Each participant needs two descriptors, each slab one.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) log(LogLevel::warn, "cannot raise the limit of open files");
}

// Begins again when the file is full: a log that nobody reads must not fill the disk.
void log_bounded(LogLevel level, std::string_view text) noexcept {
  struct stat facts{};
  const bool is_full = ::fstat(STDERR_FILENO, &facts) == 0 && facts.st_size > kMostLogBytes;
  if (is_full && ::ftruncate(STDERR_FILENO, 0) != 0) return;
  process::log_nonblocking(level, text);
}

// Logs to a file, since the terminal or pipe of the first application may be gone later.
void log_to_file(const std::string& name) {
  const Fd file = SessionFolder::open().open_log(name);
  ::dup3(file.get(), STDERR_FILENO, 0);
  set_log_sink(&log_bounded);
}

// The keeper of a named session must be a daemon, or it would become a zombie of its starter: this process starts it
// and exits.
[[noreturn]] void launch(const KeeperArguments& arguments, const Fd& starter) {
  KeeperArguments next = arguments;
  next.is_launcher = false;
  const SpawnOptions options{
      .executable = own_executable(), .arguments = to_arguments(next), .inherit = {{starter.get(), kKeeperChannel}}};
  // NOLINTNEXTLINE(clang-analyzer-deadcode.DeadStores): owned until this process is gone
  const ChildProcess keeper = ChildProcess::spawn(options);
  std::_Exit(EXIT_SUCCESS);  // without the destructor, which would kill it
}

// Reports the error to the starter, which is waiting.
int report(const Fd& starter, const Error& error) noexcept {
  if (!starter.is_open()) {  // the keeper has already reported
    log(LogLevel::error, error.what());
    return EXIT_FAILURE;
  }
  try {
    const Reply reply{
        .type = RequestType::hello, .failure = error.code(), .text = error.message(), .remedy = error.remedy()};
    if (Connection(starter.duplicate()).send(encode(reply)) == 0) return EXIT_FAILURE;
  } catch (const std::exception& again) {
    log(LogLevel::error, again.what());
  }
  log(LogLevel::error, error.what());
  return EXIT_FAILURE;
}

// SIGPIPE: a client is gone; SIGXFSZ: a memory file exceeds the file size limit. Calls report both as errors too.
void ignore_signals_of_calls() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) {
    static_cast<void>(std::signal(signal, SIG_IGN));  // NOLINT(performance-no-int-to-ptr): definition of SIG_IGN
  }
}

void keep(const KeeperArguments& arguments, Fd& starter) {
  set_log_sink(&process::log_nonblocking);  // a slow reader of standard error must not block the loop
  ignore_signals_of_calls();
  raise_file_limit();
  Keeper keeper(arguments.settings, starter.duplicate());
  if (!arguments.settings.name.empty()) log_to_file(arguments.settings.name);
  starter.reset();  // the keeper closes its own copy when the starter does
  keeper.run();
}

}  // namespace

int run_keeper(int argc, char** argv) {
  Fd starter(kKeeperChannel);
  process::fill_standard_streams();
  try {
    ::fcntl(starter.get(), F_SETFD, FD_CLOEXEC);
    const KeeperArguments arguments = parse_keeper_arguments({argv, static_cast<std::size_t>(argc)});
    if (arguments.is_launcher) launch(arguments, starter);
    keep(arguments, starter);
    return EXIT_SUCCESS;
  } catch (const Error& error) {
    return report(starter, error);
  } catch (const std::exception& error) {
    return report(starter, Error(Errc::internal, fmt::format("the keeper failed: {}", error.what())));
  }
}

}  // namespace drover::session
