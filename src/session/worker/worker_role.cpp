#include "session/worker/worker_role.hpp"

#include <cxxabi.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <memory>
#include <typeinfo>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/fd.hpp"
#include "drover/base/log.hpp"
#include "drover/base/mutex.hpp"
#include "drover/ipc/channel.hpp"
#include "drover/session/session.hpp"
#include "drover/session/worker.hpp"
#include "process/spawn/death_watch.hpp"
#include "process/spawn/init_state.hpp"
#include "session/worker/entry_table.hpp"
#include "session/worker/session_tie.hpp"

namespace drover::session {
namespace {

constexpr std::string_view kEntry = "--entry=";
constexpr std::string_view kName = "--name=";
constexpr std::string_view kParent = "--parent=";
constexpr std::string_view kRest = "--";
constexpr std::size_t kLongestFailure = 32 * std::size_t{1024};

// Makes an inherited descriptor close on exec, so that programs started by the worker do not get it.
Fd take(int number) {
  if (::fcntl(number, F_SETFD, FD_CLOEXEC) != 0)
    throw_errno("fcntl", fmt::format("descriptor {} of a worker", number));
  return Fd(number);
}

// The worker's messages to its parent, also from the watching thread. Drops a message if the parent is gone or does
// not read.
class Report {
 public:
  explicit Report(Fd socket) : channel_(std::move(socket)) {}

  void say(char kind, std::string_view text) noexcept {
    const MutexLock lock(mutex_);
    try {
      const auto words = kind + std::string(text.substr(0, kLongestFailure));
      static_cast<void>(channel_.send(words, {}, Deadline::after(std::chrono::seconds(0))));
    } catch (const std::exception& error) {
      log(LogLevel::debug, error.what());
    }
  }

 private:
  Mutex mutex_;
  Channel channel_ DROVER_GUARDED_BY(mutex_);
};

std::string name_of(const std::type_info* type) {
  if (type == nullptr) return "an exception of unknown type";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(type->name(), nullptr, nullptr, &status),
                                                    std::free);
  return name ? name.get() : type->name();
}

// Whether the current exception describes one of the program's own code, such as an initializer: the pool shows it.
bool is_own_of_program() {
  try {
    throw;
  } catch (const Error& error) {
    return error.code() == Errc::task_failed;
  } catch (...) {
    return false;
  }
}

// Describes the current exception.
std::string current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    if (is_own_of_program()) return error.message();
    return fmt::format("{}: {}", name_of(&typeid(error)), error.what());
  } catch (const std::exception& error) {
    return fmt::format("{}: {}", name_of(&typeid(error)), error.what());
  } catch (...) {
    return name_of(abi::__cxa_current_exception_type());
  }
}

// From here on the worker dies with its parent and with the keeper, and so do its descendants: it adopts orphans.
void tie_to_parent(process::DeathWatch& watch, pid_t parent) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  watch.depend_on_parent(take(kWorkerParent), parent,
                         fmt::format("a worker ends because its parent, process {}, has ended", parent));
  // Until now the kernel killed only this process at its parent's death; from now on the watch kills its descendants
  // too, for which a stopped worker must be continued.
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);
}

Session join(process::DeathWatch& watch) {
  const Session session = Session::inherited();
  ::unsetenv("DROVER_SESSION_FD");  // programs started by the worker are not in the session
  depend_on_keeper(watch, session, "a worker");
  return session;
}

void work(const WorkerArguments& orders, Report& report) {
  process::DeathWatch watch([&report](const std::string& reason) { report.say(kFailure, reason); });
  tie_to_parent(watch, orders.parent);
  EntryTable::instance().close();
  process::set_initialised();
  const EntryBody& body = EntryTable::instance().find(orders.entry);
  Worker worker(orders.name, orders.arguments, join(watch));
  report.say(kReady, "");
  body(worker);
}

}  // namespace

std::vector<std::string> to_arguments(const WorkerArguments& worker) {
  std::vector<std::string> arguments = {
      fmt::format("{}worker", kRoleArgument), fmt::format("{}{}", kEntry, worker.entry),
      fmt::format("{}{}", kName, worker.name), fmt::format("{}{}", kParent, worker.parent), std::string(kRest)};
  arguments.insert(arguments.end(), worker.arguments.begin(), worker.arguments.end());
  return arguments;
}

WorkerArguments parse_worker_arguments(std::span<char* const> arguments) {
  constexpr std::size_t kFixed = 6;
  const auto value = [&](std::size_t index, std::string_view key) -> std::string_view {
    const std::string_view text = index < arguments.size() ? arguments[index] : "";
    require(text.starts_with(key), "invalid arguments of a worker", "let drover::Process start workers");
    return text.substr(key.size());
  };
  WorkerArguments worker{.entry = std::string(value(2, kEntry)), .name = std::string(value(3, kName))};
  const auto parent = value(4, kParent);
  const auto parsed = std::from_chars(parent.data(), parent.data() + parent.size(), worker.parent);
  require(parsed.ec == std::errc{} && value(5, kRest).empty(), "invalid arguments of a worker");
  for (const char* const argument : arguments.subspan(kFixed)) worker.arguments.emplace_back(argument);
  return worker;
}

int run_worker(std::span<char* const> arguments) {
  // Never freed, since the watching thread may use it until the end.
  Report* report = nullptr;
  try {
    const WorkerArguments orders = parse_worker_arguments(arguments);
    report = new Report(take(kWorkerReport));
    work(orders, *report);
    return EXIT_SUCCESS;
  } catch (...) {
    const auto failure = current_failure();
    if (report == nullptr || !is_own_of_program()) fmt::print(stderr, "{}\n", failure);
    if (report == nullptr) return kWorkerMisused;
    report->say(kFailure, failure);
    return kWorkerFailed;
  }
}

}  // namespace drover::session
