#include "drover/session/process.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/base/trace.hpp"
#include "drover/ipc/channel.hpp"
#include "drover/process/child_process.hpp"
#include "process/inspect/pidfd.hpp"
#include "process/spawn/child_watch.hpp"
#include "process/spawn/init_state.hpp"
#include "session/wire/process_identity.hpp"
#include "session/worker/entry_table.hpp"
#include "session/worker/worker_role.hpp"

namespace drover {
namespace {

constexpr std::chrono::seconds kTimeToDie{10};
constexpr std::streamoff kTailBytes = 4096;

std::string next_name() {
  static std::atomic<unsigned> next{0};
  return fmt::format("worker-{}", next++);
}

// Inherited by all descendants of the worker, even in another session, in the background or orphaned. Unique.
std::string next_mark() {
  static const auto birth = Clock::now().time_since_epoch().count();
  static std::atomic<unsigned> next{0};
  return fmt::format("{}-{}-{}", ::getpid(), birth, next++);
}

StandardStream stream_of(const WorkerOutput& output) {
  switch (output.kind()) {
    case WorkerOutput::Kind::forwarded: return StandardStream::pipe();
    case WorkerOutput::Kind::file: return StandardStream::file(output.path());
    case WorkerOutput::Kind::discarded: return StandardStream::null();
    case WorkerOutput::Kind::inherited: break;
  }
  return {};
}

SpawnOptions spawn_options(const ProcessOptions& options, const std::string& name) {
  SpawnOptions spawn;
  process::StartCommand command = process::start_command();
  spawn.executable = std::move(command.executable);
  spawn.arguments = std::move(command.arguments);
  std::ranges::move(session::to_arguments(
                        {.entry = options.entry, .name = name, .parent = ::getpid(), .arguments = options.arguments}),
                    std::back_inserter(spawn.arguments));
  spawn.environment = options.environment;
  spawn.unset = options.unset;
  spawn.environment.emplace_back("DROVER_SESSION_FD", std::to_string(session::kWorkerSession));
  spawn.placement = options.placement;
  spawn.streams = {
      .input = StandardStream::null(), .output = stream_of(options.output), .error = stream_of(options.output)};
  spawn.group = ChildGroup::own_session;
  spawn.parent_death_signal = SIGKILL;  // until the worker watches its parent itself
  return spawn;
}

std::string tail_of_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    return {};  // opening a named pipe would make this process its reader
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : 0;
  file.seekg(std::max<std::streamoff>(0, size - kTailBytes));
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string indented(const std::string& text) {
  std::string result = "\n  " + text;
  while (result.ends_with('\n')) result.pop_back();
  for (auto at = result.find('\n', 1); at != std::string::npos; at = result.find('\n', at + 1))
    result.insert(at + 1, "  ");
  return result;
}

}  // namespace

class Process::State {
 public:
  State(std::string name, ChildProcess child, Channel report, std::shared_ptr<process::ChildWatch> watch,
        std::string file)
      : name_(std::move(name)),
        child_(std::move(child)),
        report_(std::move(report)),
        watch_(std::move(watch)),
        file_(std::move(file)),
        process_(::getpid()) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (status_ || process_ != ::getpid()) return;  // a forked child owns no worker
    try {
      static_cast<void>(child_.kill_tree(Deadline::after(kTimeToDie)));
      if (wait(Deadline::after(kTimeToDie))) return;
    } catch (const std::exception& error) {
      log(LogLevel::error, error.what());
    }
    watch_->forget(child_.pid());
  }

  void check_process() const {
    if (process_ == ::getpid()) return;
    throw Error(
        Errc::forked,
        fmt::format("worker {} belongs to process {}, from which process {} was forked", name_, process_, ::getpid()),
        "leave it to the process that started it");
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] ChildProcess& child() noexcept { return child_; }
  [[nodiscard]] const std::string& failure() {
    take_reports(Deadline::after(std::chrono::seconds(0)));
    return failure_;
  }
  [[nodiscard]] std::string error_tail() const {
    if (!file_.empty()) return tail_of_file(file_);
    return status_ ? tail_ : watch_->tail(child_.pid());
  }

  // Reaps it after the clean-up, which needs its pipes and id.
  std::optional<ExitStatus> wait(Deadline deadline) {
    if (status_) return status_;
    if (!process::pidfd_wait(child_.pidfd(), deadline)) return std::nullopt;
    take_reports(Deadline::after(std::chrono::seconds(0)));
    tail_ = watch_->finish(child_.pid());
    status_ = child_.wait(Deadline::never());
    return status_;
  }

  WaitResult wait_ready(Deadline deadline) {
    for (;;) {
      const bool has_ended =
          status_ || process::pidfd_has_ended(child_.pidfd());  // before the reports, so that none is lost
      take_reports(Deadline::after(std::chrono::seconds(0)));
      if (is_ready_) return WaitResult::done;
      if (has_ended) {
        static_cast<void>(wait(deadline));
        throw lost();
      }
      if (deadline.has_passed()) return WaitResult::timed_out;
      await_news(deadline);
    }
  }

  std::string describe() {
    const auto& why = failure();
    return fmt::format("{} (process {}) {}{}{}", name_, child_.pid(), status_ ? status_->to_string() : "is running",
                       why.empty() ? "" : ": ", why);
  }

 private:
  // Waits for a message or the end of the worker; a forked child of the worker may hold the channel open after that.
  void await_news(Deadline deadline) const {
    std::array<pollfd, 2> news = {pollfd{.fd = child_.pidfd(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = is_silent_ ? -1 : report_.fd(), .events = POLLIN, .revents = 0}};
    ::poll(news.data(), news.size(), deadline.poll_timeout());
  }
  // Receives a message of the worker; false if the deadline passes or none can come.
  bool take_report(Deadline deadline) {
    if (is_silent_) return false;
    ChannelMessage message;
    const auto result = report_.receive(message, deadline);
    is_silent_ = result == ReceiveResult::peer_lost;
    if (result != ReceiveResult::message) return false;
    if (message.bytes.starts_with(session::kReady)) is_ready_ = true;
    if (message.bytes.starts_with(session::kFailure)) failure_ = message.bytes.substr(1);
    return true;
  }
  void take_reports(Deadline deadline) {
    while (take_report(deadline)) continue;
  }
  Error lost() {
    auto text = fmt::format("{} before it joined its session", describe());
    if (const auto tail = error_tail(); !tail.empty())
      text += "; the last lines of its standard error:" + indented(tail);
    return Error(Errc::peer_lost, text, "call drover::init(argc, argv) first in main; see the output of the worker");
  }

  std::string name_;
  ChildProcess child_;
  Channel report_;
  std::shared_ptr<process::ChildWatch> watch_;  // shared by all workers
  std::string file_;
  pid_t process_;  // process that started it
  std::string tail_;
  std::string failure_;
  bool is_ready_ = false;
  bool is_silent_ = false;  // the channel has ended
  std::optional<ExitStatus> status_;
};

Process Process::start(Session session, const ProcessOptions& options) {
  const TraceSpan span("process.start");
  require(process::was_initialised(), "cannot start a worker: this program has not called drover::init",
          "call drover::init(argc, argv) first in main");
  static_cast<void>(session::EntryTable::instance().find(options.entry));
  const auto name = options.name.empty() ? next_name() : options.name;
  const Fd invitation = session.invite(name);
  const Fd self = session::open_pidfd(::getpid());
  auto [ours, theirs] = Channel::make_pair();
  SpawnOptions spawn = spawn_options(options, name);
  const auto mark = next_mark();
  spawn.environment.emplace_back(session::kMarkVariable, mark);
  spawn.inherit = {{invitation.get(), session::kWorkerSession},
                   {theirs.fd(), session::kWorkerReport},
                   {self.get(), session::kWorkerParent}};
  auto watch = process::ChildWatch::instance();
  ChildProcess child = watch->spawn(spawn);
  Fd output = child.take_pipe(STDOUT_FILENO);
  Fd error = child.take_pipe(STDERR_FILENO);
  auto state = std::make_unique<State>(name, std::move(child), std::move(ours), watch, options.output.path());
  watch->add(state->child(), {.name = name,
                              .output = std::move(output),
                              .error = std::move(error),
                              .mark = fmt::format("{}={}", session::kMarkVariable, mark)});
  return Process(std::move(state));
}

Process::Process(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Process::Process(Process&& other) noexcept = default;
Process& Process::operator=(Process&& other) noexcept = default;
Process::~Process() = default;

Process::State& Process::state() const {
  require(state_ != nullptr, "a moved-from Process owns no worker");
  state_->check_process();
  return *state_;
}

const std::string& Process::name() const { return state().name(); }
pid_t Process::pid() const { return state().child().pid(); }
int Process::pidfd() const { return state().child().pidfd(); }
WaitResult Process::wait_ready(Deadline deadline) { return state().wait_ready(deadline); }
std::optional<ExitStatus> Process::wait(Deadline deadline) { return state().wait(deadline); }
void Process::kill(int signal) { state().child().kill(signal); }
const std::string& Process::failure() { return state().failure(); }
std::string Process::error_tail() const { return state().error_tail(); }
std::string Process::describe() { return state().describe(); }

ExitStatus Process::end(Duration grace) {
  kill(SIGTERM);
  return end_by(Deadline::after(grace));
}

ExitStatus Process::end_by(Deadline deadline) {
  if (const auto status = wait(deadline)) return *status;
  static_cast<void>(state().child().kill_tree(Deadline::after(kTimeToDie)));
  return await_killed(Deadline::after(kTimeToDie));
}

ExitStatus Process::await_killed(Deadline deadline) {
  if (const auto status = wait(deadline)) return *status;
  throw Error(Errc::timed_out, fmt::format("{} was killed and does not end", describe()),
              "it is stuck in the kernel, as with a failing device; the machine may need a restart");
}

std::vector<Process> start_all(const Session& session, const std::vector<ProcessOptions>& options) {
  std::vector<Process> workers;
  workers.reserve(options.size());
  for (const auto& each : options) workers.push_back(Process::start(session, each));
  return workers;
}

void end_all(std::vector<Process>& workers, Duration grace) {
  std::exception_ptr first;
  const auto for_each = [&](const auto& act) {
    for (auto& worker : workers) {
      try {
        act(worker);
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
  };
  const auto deadline = Deadline::after(grace);
  std::vector<ChildProcess*> left;
  for_each([](Process& worker) { worker.kill(SIGTERM); });
  for_each([&](Process& worker) {
    if (!worker.wait(deadline)) left.push_back(&worker.state().child());
  });
  const auto last_deadline = Deadline::after(kTimeToDie);
  if (!left.empty()) static_cast<void>(ChildProcess::kill_trees(left, last_deadline));
  for_each([&](Process& worker) { worker.await_killed(last_deadline); });
  if (first) std::rethrow_exception(first);
}

}  // namespace drover
