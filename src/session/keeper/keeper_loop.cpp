#include "session/keeper/keeper_loop.hpp"

#include <fcntl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/process/process_tree.hpp"
#include "session/wire/process_identity.hpp"

namespace drover {
namespace {

// Killed workers need a moment to die; one that is stuck in the kernel must not keep the session.
constexpr std::chrono::seconds kLongestEnd{5};
constexpr std::chrono::seconds kTimeToKill{3};
// Without a single open file to spare in the whole machine.
constexpr std::chrono::milliseconds kPauseOfListening{100};

Fd open_spare() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

Keeper::Keeper(KeeperSettings settings, Fd starter)
    : settings_(std::move(settings)), starter_(std::move(starter)), spare_(open_spare()) {
  poller_.add(starter_.get(), {.kind = PollKey::Kind::starter});
  watch_signals();
  if (settings_.name.empty()) {
    invite_application();
  } else {
    open_name();
  }
}

Keeper::~Keeper() {
  if (!end_deadline_) give_up_name();
}

void Keeper::run() {
  greet();
  note_idleness();
  while (!is_done()) {
    for (const PollKey key : poller_.wait(next_deadline())) handle(key);
    listen_again();
    note_idleness();
    if (std::exchange(must_kill_workers_, false)) kill_workers();
  }
  clients_.clear();
}

void Keeper::greet() {
  Connection starter(starter_.duplicate());
  const Reply hello{.type = RequestType::hello};
  const bool is_heard = starter.send(encode(hello), application_end_.get()) == 0;
  application_end_.reset();
  if (!is_heard && settings_.name.empty()) begin_end();
}

void Keeper::open_name() {
  folder_ = SessionFolder::open();
  auto lock = folder_->try_lock(settings_.name);
  if (!lock) {
    throw Error(Errc::busy, fmt::format("session '{}' has a keeper already", settings_.name), "join it");
  }
  lock_ = std::move(*lock);
  SessionFolder::sign(lock_);
  try {
    listener_ = folder_->listen(settings_.name);
    poller_.add(listener_.get(), {.kind = PollKey::Kind::listener});
  } catch (...) {
    give_up_name();
    throw;
  }
}

// Files that somebody removed under us may be another keeper's by now.
void Keeper::give_up_name() noexcept {
  if (folder_) folder_->remove_if_held(settings_.name, lock_);
}

// The application is watched from the first moment on, whether it joins or not. Its connection is made here, so that
// no process but this one ever has the keeper's end: a child that the application forks could otherwise keep it open,
// and nobody would notice the keeper's death.
void Keeper::invite_application() {
  starter_pidfd_ = open_pidfd(peer_credentials(starter_).pid);
  poller_.add(starter_pidfd_.get(), {.kind = PollKey::Kind::process, .number = 0});
  auto [ours, theirs] = Connection::make_pair();
  participants_.announce();
  add_client({.connection = std::move(ours), .is_announced = true, .is_application = true});
  application_end_ = std::move(theirs);
}

void Keeper::watch_signals() {
  sigset_t awaited;
  ::sigemptyset(&awaited);
  for (const int signal : {SIGTERM, SIGINT}) ::sigaddset(&awaited, signal);
  ::sigprocmask(SIG_BLOCK, &awaited, nullptr);
  signals_ = Fd(sys::call("signalfd", ::signalfd, -1, &awaited, int{SFD_CLOEXEC | SFD_NONBLOCK}));
  if (!signals_.is_open()) throw_errno("signalfd", "the keeper");
  poller_.add(signals_.get(), {.kind = PollKey::Kind::signals});
}

bool Keeper::is_done() noexcept {
  if (!end_deadline_) return false;
  const auto& all = participants_.all();
  return end_deadline_->has_passed() ||
         std::ranges::none_of(all, [](const auto& each) { return each.second.info.is_worker; });
}

Deadline Keeper::next_deadline() {
  if (end_deadline_) return *end_deadline_;
  Deadline next = listen_again_.value_or(Deadline::never());
  const bool can_idle = idle_since_ && !settings_.name.empty() && settings_.idle_limit.count() != 0;
  if (can_idle) next = Deadline::at(std::min(next.moment(), *idle_since_ + settings_.idle_limit));
  return next;
}

void Keeper::note_idleness() {
  const auto& [present, starting, departed] = participants_.population();
  if (present + starting > 0) {
    idle_since_.reset();
  } else if (!idle_since_) {
    idle_since_ = Clock::now();
  }
  const bool can_idle = idle_since_ && !settings_.name.empty() && settings_.idle_limit.count() != 0;
  if (can_idle && Deadline::at(*idle_since_ + settings_.idle_limit).has_passed()) begin_end();
}

void Keeper::handle(PollKey key) {
  try {
    switch (key.kind) {
      case PollKey::Kind::starter: return on_starter();
      case PollKey::Kind::signals: return on_signal();
      case PollKey::Kind::listener: return on_listener();
      case PollKey::Kind::connection: return on_connection(key.number);
      case PollKey::Kind::process: return on_process(key.number);
    }
  } catch (const std::exception& error) {  // one client's trouble must not cost the others their keeper
    log(LogLevel::error, error.what());
    if (key.kind == PollKey::Kind::connection) drop(key.number);
  }
}

// It says nothing; it closes when it has joined, or has given up.
void Keeper::on_starter() {
  poller_.remove(starter_.get());
  starter_.reset();
  const bool is_waited_for = std::ranges::any_of(
      clients_, [](const auto& each) { return each.second.is_application && each.second.is_announced; });
  if (is_waited_for) begin_end();
}

// SIGTERM or SIGINT. It is not read: there is nothing more to learn.
void Keeper::on_signal() {
  poller_.remove(signals_.get());
  begin_end();
}

void Keeper::on_listener() {
  for (;;) {
    Fd socket(sys::call("accept4", ::accept4, listener_.get(), static_cast<sockaddr*>(nullptr),
                        static_cast<socklen_t*>(nullptr), int{SOCK_CLOEXEC}));
    if (socket.is_open()) {
      take_visitor(std::move(socket));
    } else if (errno == EMFILE || errno == ENFILE) {
      return refuse_for_lack_of_files();
    } else if (errno != EINTR && errno != ECONNABORTED) {
      if (errno != EAGAIN) throw_errno("accept4", "the control socket");
      return;
    }
  }
}

void Keeper::take_visitor(Fd socket) {
  const Credentials visitor = peer_credentials(socket);
  Connection connection(std::move(socket));
  if (visitor.uid == ::geteuid()) {
    add_client({.connection = std::move(connection)});
    return;
  }
  log(LogLevel::warn, "a process of another user was refused; user", visitor.uid);
  const Error refusal(
      Errc::permission_denied,
      fmt::format("process {} of user {} cannot use a session of user {}", visitor.pid, visitor.uid, ::geteuid()),
      "run it as the user who started the session");
  static_cast<void>(connection.send(encode(failure_reply({}, refusal))));
}

// Left alone, the connection would stay in the queue and wake the loop again and again.
void Keeper::refuse_for_lack_of_files() {
  spare_.reset();
  Fd socket(sys::call("accept4 again", ::accept4, listener_.get(), static_cast<sockaddr*>(nullptr),
                      static_cast<socklen_t*>(nullptr), int{SOCK_CLOEXEC}));
  if (!socket.is_open()) {
    stop_listening();
  } else {
    const Error refusal = error_from_errno(EMFILE, "accept4", "a new participant, in the keeper");
    static_cast<void>(Connection(std::move(socket)).send(encode(failure_reply({}, refusal))));
  }
  spare_ = open_spare();
}

void Keeper::stop_listening() {
  if (errno != EMFILE && errno != ENFILE) return;
  poller_.remove(listener_.get());
  listen_again_ = Deadline::after(kPauseOfListening);
}

void Keeper::listen_again() {
  if (!listen_again_ || !listen_again_->has_passed()) return;
  listen_again_.reset();
  if (listener_.is_open()) poller_.add(listener_.get(), {.kind = PollKey::Kind::listener});
}

std::uint64_t Keeper::add_client(Client client) {
  poller_.add(client.connection.fd(), {.kind = PollKey::Kind::connection, .number = last_client_ + 1});
  client.id = ++last_client_;
  clients_.emplace(last_client_, std::move(client));
  return last_client_;
}

void Keeper::on_connection(std::uint64_t id) {
  const auto at = clients_.find(id);
  if (at == clients_.end()) return;
  IncomingMessage message;
  switch (at->second.connection.receive(message)) {
    case IncomingResult::message: return answer(id, message);
    case IncomingResult::closed: return drop(id);
    case IncomingResult::nothing: return;
  }
}

void Keeper::drop(std::uint64_t id) {
  const auto at = clients_.find(id);
  if (at == clients_.end()) return;
  poller_.remove(at->second.connection.fd());
  if (at->second.is_announced) {
    participants_.retract();
    objects_.wake_all();  // who waits for somebody to come may be alone now
  }
  if (Participant* const participant = participants_.find(at->second.owner)) participants_.set_silent(*participant);
  clients_.erase(at);
}

// 0 is the application, watched since before it joined.
void Keeper::on_process(std::uint64_t incarnation) {
  if (incarnation == 0) {
    poller_.remove(starter_pidfd_.get());
    begin_end();
  } else if (const Participant* const dead = participants_.find_incarnation(incarnation)) {
    const std::uint64_t connection = dead->connection;
    depart(dead->info.number, true);
    drop(connection);  // a child that it forked may still have the other end
  }
}

void Keeper::depart(Owner number, bool is_dead) {
  Participant* const leaving = participants_.find(number);
  if (leaving == nullptr) return;
  poller_.remove(leaving->pidfd.get());
  if (const auto client = clients_.find(leaving->connection); client != clients_.end()) {
    client->second.owner = kNobody;
  }
  const bool was_application = leaving->is_application;
  objects_.depart(number, is_dead ? leaving->info.pid : 0);
  participants_.remove(number);
  objects_.wake_all();  // once more: who was woken before may have counted it still
  if (was_application) begin_end();
}

// The name is free from here on: who opens it now gets a new session. Workers are killed when whoever asked for the
// end has his answer, since that takes a while.
void Keeper::begin_end() {
  if (end_deadline_) return;
  end_deadline_ = Deadline::after(kLongestEnd);
  participants_.set_ending();
  objects_.wake_all();
  if (listener_.is_open()) poller_.remove(listener_.get());
  listener_.reset();
  give_up_name();
  must_kill_workers_ = true;
}

// With everything below them: a worker that is killed alone leaves its own children to nobody.
void Keeper::kill_workers() {
  std::vector<TreeRoot> workers;
  for (const auto& [number, participant] : participants_.all()) {
    if (participant.info.is_worker)
      workers.push_back({.pid = participant.info.pid, .pidfd = participant.pidfd.get()});
  }
  static_cast<void>(kill_trees(workers, Deadline::after(kTimeToKill)));
}

}  // namespace drover
