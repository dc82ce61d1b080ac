#include "drover/session/session.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/config.hpp"
#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/mutex.hpp"
#include "drover/base/trace.hpp"
#include "session/client/session_state.hpp"
#include "session/client/start_keeper.hpp"
#include "session/wire/process_identity.hpp"
#include "session/wire/session_folder.hpp"

namespace drover {
namespace {

constexpr const char* kSessionVariable = "DROVER_SESSION_FD";
constexpr std::chrono::milliseconds kPause{2};
constexpr std::chrono::milliseconds kWaitForOther{50};  // for a keeper that another process is starting

std::string participant_name(const SessionOptions& options) {
  if (options.participant_name.empty()) return session::program_name();
  require(session::is_display_name(options.participant_name),
          "the name of a participant has 1 to 63 bytes and no control characters");
  return options.participant_name;
}

void check_options(const SessionOptions& options) {
  require(options.patience.count() > 0, "SessionOptions::patience is not positive", "leave it at its default");
  require(options.idle_limit.count() >= 0, "SessionOptions::idle_limit is negative", "use 0 for never");
}

// As the keeper takes it: 0 for never, which more than a year means too.
std::chrono::seconds idle_limit_of(const SessionOptions& options) {
  if (options.idle_limit > std::chrono::hours(24 * 365)) return std::chrono::seconds(0);
  return std::chrono::ceil<std::chrono::seconds>(options.idle_limit);
}

std::optional<Fd> connect_within(const session::SessionFolder& folder, const std::string& name, Deadline deadline) {
  for (;;) {
    if (auto connection = folder.connect(name)) return connection;
    if (deadline.has_passed()) return std::nullopt;
    std::this_thread::sleep_for(kPause);
  }
}

// A keeper may end during the connection, and several processes may start one at the same time. The lock of the name
// decides; the others join.
std::shared_ptr<session::SessionState> join_or_start(const session::SessionFolder& folder, const std::string& name,
                                                     const SessionOptions& options) {
  const Deadline deadline = Deadline::after(options.patience);
  std::chrono::milliseconds wait{0};
  for (;;) {
    if (auto connection = connect_within(folder, name, Deadline::after(wait))) {
      try {
        return std::make_shared<session::SessionState>(std::move(*connection), participant_name(options),
                                                       options.patience);
      } catch (const Error& error) {
        if (error.code() != Errc::peer_lost || deadline.has_passed()) throw;
      }
    }
    if (deadline.has_passed()) {
      throw Error(Errc::timed_out, fmt::format("session '{}' in {} could not be joined in time", name, folder.path()),
                  "check if its keeper is stopped; `drover session end --force` ends it");
    }
    wait = session::start_named_keeper({.name = name, .idle_limit = idle_limit_of(options)}, deadline) ==
                   session::NamedStart::taken
               ? kWaitForOther
               : std::chrono::milliseconds(0);
  }
}

bool is_control_socket(int fd) {
  int type = 0;
  socklen_t length = sizeof(type);
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET;
}

// The connection that this process inherited; the first caller uses it.
struct Inheritance {
  Mutex mutex;
  std::weak_ptr<session::SessionState> state DROVER_GUARDED_BY(mutex);
  bool is_taken DROVER_GUARDED_BY(mutex) = false;    // the connection was taken
  bool has_joined DROVER_GUARDED_BY(mutex) = false;  // through it

  static Inheritance& instance() {
    static Inheritance inheritance;
    return inheritance;
  }
};

Fd take_inherited() {
  const auto number = environment_number(kSessionVariable, -1, 0, 1 << 30);
  if (number < 0) {
    throw Error(Errc::not_found, fmt::format("process {} was not started into a session", ::getpid()),
                "start it as a worker, or call Session::start or Session::open");
  }
  const int fd = static_cast<int>(number);
  if (!is_control_socket(fd)) {
    throw Error(Errc::not_found,
                fmt::format("{}={} is not a connection to a session in process {}", kSessionVariable, fd, ::getpid()),
                "let a worker join before it starts others, and start those as workers too");
  }
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return Fd(fd);
}

}  // namespace

Session::Session(std::shared_ptr<session::SessionState> state) noexcept : state_(std::move(state)) {}

Session Session::start(const SessionOptions& options) {
  const TraceSpan span("session.start");
  check_options(options);
  session::StartedKeeper keeper = session::start_keeper(Deadline::after(options.patience));
  auto state = std::make_shared<session::SessionState>(std::move(keeper.connection), participant_name(options),
                                                       options.patience);
  state->own_keeper(std::move(keeper.process));
  return Session(std::move(state));
}

Session Session::open(const std::string& name, const SessionOptions& options) {
  const TraceSpan span("session.open");
  session::check_session_name(name);
  check_options(options);
  return Session(join_or_start(session::SessionFolder::open(), name, options));
}

Session Session::inherited() {
  auto& inheritance = Inheritance::instance();
  const MutexLock lock(inheritance.mutex);
  if (auto state = inheritance.state.lock()) return Session(std::move(state));
  if (inheritance.is_taken && !inheritance.has_joined) {
    throw Error(Errc::not_found, fmt::format("process {} could not join the session it was started into", ::getpid()),
                "see the error of the first call of Session::inherited; start the worker again");
  }
  if (inheritance.is_taken) {
    throw Error(Errc::not_found, fmt::format("process {} has left the session it was started into", ::getpid()),
                "keep a copy of the Session as long as it is needed");
  }
  const TraceSpan span("session.join");
  Fd connection = take_inherited();
  inheritance.is_taken = true;
  auto state = std::make_shared<session::SessionState>(std::move(connection), session::program_name(),
                                                       SessionOptions{}.patience);
  inheritance.has_joined = true;
  inheritance.state = state;
  return Session(std::move(state));
}

Session::operator std::shared_ptr<Membership>() const { return state_; }

const std::string& Session::name() const noexcept { return state_->name(); }
pid_t Session::keeper_pid() const noexcept { return state_->keeper_pid(); }
Owner Session::self() const noexcept { return state_->self(); }
std::uint64_t Session::incarnation() const noexcept { return state_->incarnation(); }
std::vector<ParticipantInfo> Session::participants() const { return state_->participants(); }
Population Session::population() const noexcept { return state_->population(); }
void Session::check() const { state_->check(); }

Fd Session::invite(const std::string& participant_name) {
  require(session::is_display_name(participant_name),
          "the name of a participant has 1 to 63 bytes and no control characters");
  return state_->ask_for_file({.type = session::RequestType::invite, .name = participant_name});
}

SlabId Session::deposit(const Fd& slab, const std::string& label, std::uint64_t bytes) {
  require(slab.is_open(), "cannot deposit an empty descriptor");
  require(session::is_display_name(label), "the label of a slab has 1 to 63 bytes and no control characters");
  const session::Request request{.type = session::RequestType::deposit, .number = bytes, .name = label};
  return SlabId{state_->ask(request, slab.get()).reply.number};
}

Fd Session::fetch(SlabId slab) {
  return state_->ask_for_file({.type = session::RequestType::fetch, .number = static_cast<std::uint64_t>(slab)});
}

void Session::withdraw(SlabId slab) {
  state_->ask({.type = session::RequestType::withdraw, .number = static_cast<std::uint64_t>(slab)});
}

std::vector<KeptInfo> Session::kept() const { return state_->kept(); }
void Session::drop(const std::string& name) { state_->drop(name); }

void Session::end() { state_->end(); }

}  // namespace drover
