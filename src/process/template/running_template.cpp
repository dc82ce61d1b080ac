#include "process/template/running_template.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "process/inspect/pidfd.hpp"
#include "process/spawn/remote_status.hpp"
#include "process/spawn/standard_streams.hpp"
#include "process/spawn/thread_place.hpp"
#include "process/template/template_server.hpp"
#include "process/template/template_wire.hpp"

namespace drover::process {
namespace {

// Reserved in the template for the arguments and variables that its children show in /proc.
constexpr std::size_t kRoomForArguments = 1024;
constexpr std::size_t kRoomForVariables = 16 * std::size_t{1024};
constexpr std::chrono::seconds kTemplateTimeToDie{5};
constexpr std::string_view kReady = "ready\n";
constexpr int kSendPause = 20;  // milliseconds between checks if another thread has received the message

SpawnOptions options_of(const TemplateCommand& command, const Fd& control, const Fd& self) {
  SpawnOptions options;
  options.executable = command.executable;
  options.arguments = command.arguments;
  options.arguments.emplace_back(kRoomForArguments, ' ');
  options.environment = command.environment;
  options.environment.emplace_back("DROVER_TEMPLATE_ROOM", std::string(kRoomForVariables, ' '));
  options.inherit = {{control.get(), kTemplateControl}, {self.get(), kTemplateApplication}};
  options.streams.input = StandardStream::null();
  return options;
}

Fd working_folder() {
  const auto open = [](const char* path) { return ::open(path, O_PATH | O_DIRECTORY | O_CLOEXEC); };
  Fd folder(sys::call("open", open, "."));
  if (!folder.is_open()) throw_errno("open", "the working directory");
  return folder;
}

// The place that a child of this thread would inherit.
SpawnOptions placed_here(SpawnOptions options) {
  const ThreadPlace here = place_of_this_thread();
  if (options.placement.cpus.empty()) options.placement.cpus = here.cpus;
  if (!options.placement.niceness) options.placement.niceness = here.niceness;
  return options;
}

std::vector<std::string> texts_of(const std::vector<char*>& pointers) {
  return {pointers.begin(), pointers.end() - 1};
}

// The descriptors of the plan, and the standard streams that it does not replace, since the template has others.
std::vector<std::pair<int, int>> descriptors_of_child(const SpawnPlan& plan) {
  auto moves = plan.moves;
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    const auto leads_there = [&](const std::pair<int, int>& move) { return move.second == number; };
    if (std::ranges::none_of(moves, leads_there)) moves.emplace_back(number, number);
  }
  return moves;
}

}  // namespace

RunningTemplate::RunningTemplate(const TemplateCommand& command)
    : owner_(::getpid()), facts_(template_facts_now()), patience_(command.patience) {
  auto [ours, theirs] = message_sockets();
  control_ = std::move(ours);
  const Fd self(sys::call("pidfd_open", pidfd_open, ::getpid()));
  if (!self.is_open()) throw_errno("pidfd_open", "this process, for a template");
  const SpawnOptions options = options_of(command, theirs, self);
  command.is_detached ? start_detached(options) : start_child(options);
}

RunningTemplate::~RunningTemplate() {
  if (detached_.is_open() && owner_ == ::getpid()) static_cast<void>(pidfd_send_signal(detached_.get(), SIGKILL));
}

void RunningTemplate::start_child(const SpawnOptions& options) {
  watch_ = ChildWatch::instance();
  SpawnOptions bound = options;
  bound.parent_death_signal = SIGKILL;
  child_ = watch_->spawn(bound);
  pid_ = child_->pid();
}

// By this thread, whose end must not end it, and without the thread of a ChildWatch.
void RunningTemplate::start_detached(const SpawnOptions& options) {
  SpawnOptions silent = options;
  silent.streams.output = StandardStream::null();
  silent.streams.error = StandardStream::null();
  Spawned spawned = spawn_detached(silent);
  pid_ = spawned.pid;
  detached_ = std::move(spawned.pidfd);
}

bool RunningTemplate::tell(std::string_view text) const {
  const Fd file = file_with(text);
  return send_message(control_.get(), kWord, {file.get()});
}

bool RunningTemplate::fits() const { return template_facts_now() == facts_; }

bool RunningTemplate::has_ended() const noexcept { return pidfd_has_ended(pidfd()); }

// A waiting thread must not block one that only checks, so several may wait and one of them gets the message.
bool RunningTemplate::wait_ready(Deadline deadline) {
  while (!is_ready_) {
    std::array<pollfd, 2> news = {pollfd{.fd = control_.get(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = pidfd(), .events = POLLIN, .revents = 0}};
    const int left = deadline.poll_timeout();
    ::poll(news.data(), news.size(), left < 0 ? kSendPause : std::min(left, kSendPause));
    if (take_ready(news[0].revents != 0)) return true;
    if (news[1].revents != 0 || deadline.has_passed()) return false;
  }
  return true;
}

bool RunningTemplate::take_ready(bool has_news) {
  const MutexLock lock(mutex_);
  if (is_ready_ || !has_news) return is_ready_;
  const auto message = receive_message(control_.get());
  if (!message || !message->bytes.starts_with(kReady)) return false;
  notes_ = message->bytes.substr(kReady.size());
  is_ready_ = true;
  if (!notes_.empty()) log(LogLevel::info, "left out of the template: " + notes_);
  return true;
}

std::string RunningTemplate::notes() const {
  if (!is_ready_) return {};  // until then a waiting thread may hold the mutex
  const MutexLock lock(mutex_);
  return notes_;
}

TemplateOrder RunningTemplate::to_order(SpawnPlan& plan, const OrderedStart& start) {
  TemplateOrder order;
  order.start = start.index;
  order.own_arguments = start.own_arguments;
  order.arguments = texts_of(plan.arguments);
  order.variables = texts_of(plan.variables);
  order.creation_mask = creation_mask();
  order.plan.group = plan.group;
  order.plan.parent_death_signal = plan.parent_death_signal;
  order.plan.has_niceness = plan.has_niceness;
  order.plan.niceness = plan.niceness;
  order.plan.cpus = plan.cpus;
  order.plan.folder = plan.folder;
  order.plan.limits = limits_of_child(plan);
  return order;
}

RunningTemplate::Outcome RunningTemplate::order(const SpawnOptions& options, const OrderedStart& start,
                                                Spawned& spawned) {
  SpawnPreparation preparation(placed_here(options));
  SpawnPlan& plan = preparation.plan();
  if (template_facts(plan.variables) != facts_) return Outcome::declined;
  TemplateOrder order = to_order(plan, start);
  const Fd folder = working_folder();
  auto [ours, theirs] = message_sockets();
  std::vector<int> descriptors = {-1, theirs.get(), folder.get()};
  for (const auto& [from, to] : descriptors_of_child(plan)) {
    descriptors.push_back(from);
    order.targets.push_back(to);
  }
  if (descriptors.size() > kMostDescriptors) return Outcome::declined;
  const Fd file = file_with(to_bytes(order));
  descriptors.front() = file.get();
  if (!send_message(control_.get(), "order", descriptors)) {
    return errno == EPIPE || errno == ECONNRESET ? Outcome::lost : Outcome::declined;
  }
  theirs.reset();
  const Outcome outcome = await_start(ours, spawned);
  if (outcome != Outcome::started) return outcome;
  spawned.remote = std::move(ours);
  spawned.pipes = preparation.take_pipes();
  return outcome;
}

RunningTemplate::Outcome RunningTemplate::await_start(const Fd& socket, Spawned& spawned) {
  const auto deadline = Deadline::after(patience_);
  pollfd news{.fd = socket.get(), .events = POLLIN, .revents = 0};
  for (;;) {
    ::poll(&news, 1, deadline.poll_timeout());
    auto message = receive_message(socket.get());
    if (!message && errno != EAGAIN) return Outcome::lost;
    if (!message && deadline.has_passed()) {
      give_up(socket);
      return Outcome::lost;
    }
    if (!message) continue;
    const char kind = message->bytes.front();
    if (kind == remote_status::kRefused) log_once(message->bytes.substr(1));
    if (kind != remote_status::kStarted) return Outcome::declined;  // a step failed, or it never started
    remote_status::StartedMessage started;
    if (message->bytes.size() != sizeof started) return Outcome::declined;
    std::memcpy(&started, message->bytes.data(), sizeof started);
    if (message->descriptors.size() != 1) {  // its pidfd was dropped for lack of room: the caller clones it instead
      ::kill(started.pid, SIGKILL);          // not reaped yet
      return Outcome::declined;
    }
    spawned.pid = started.pid;
    spawned.pidfd = above_standard_streams(std::move(message->descriptors.front()));
    return Outcome::started;
  }
}

// Cancels the order: kills the template, and a child that is already starting finds its socket closed.
void RunningTemplate::give_up(const Fd& socket) noexcept {
  log(LogLevel::warn, "a template does not answer and is killed; it was process", pid_);
  kill();
  ::shutdown(socket.get(), SHUT_RD);
  try {
    const auto message = receive_message(socket.get());
    if (message && !message->descriptors.empty()) {
      static_cast<void>(pidfd_send_signal(message->descriptors.front().get(), SIGKILL));
    }
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

void RunningTemplate::log_once(const std::string& why) {
  if (has_logged_.exchange(true)) return;
  log(LogLevel::warn, fmt::format("processes are started without the template (process {}), "
                                  "which takes longer: {}",
                                  pid_, why));
}

void RunningTemplate::close() noexcept {
  is_closed_ = true;
  ::shutdown(control_.get(), SHUT_RDWR);
}

// Its sockets close shortly before the process is dead.
void RunningTemplate::reap() noexcept {
  if (!is_closed_) kill();
}

void RunningTemplate::kill() noexcept {
  static_cast<void>(pidfd_send_signal(pidfd(), SIGKILL));
  static_cast<void>(pidfd_wait(pidfd(), Deadline::after(kTemplateTimeToDie)));
}

}  // namespace drover::process
