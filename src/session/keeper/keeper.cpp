#include "session/keeper/keeper.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "process/inspect/process_table.hpp"
#include "process/inspect/process_tree.hpp"
#include "session/wire/process_identity.hpp"

namespace drover::session {
namespace {

// Killed workers need a moment to die, but one that is stuck in the kernel must not keep the session alive.
constexpr std::chrono::seconds kLongestEnd{5};
constexpr std::chrono::seconds kTimeToKill{3};
constexpr std::chrono::milliseconds kSlice{2};  // of recovery, between two looks for requests
constexpr std::ptrdiff_t kMostJoins = 64;       // of one process, at the same time

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Request read_request(const IncomingMessage& message) {
  if (message.is_cut) {
    throw Error(Errc::corrupt, "a control message of a session is too long",
                "let all processes of a session use the same drover");
  }
  return parse_request(bytes_of(message.bytes));
}

// Checked for each message, since a connection may move between processes, as that of an invitation does.
Credentials check_sender(const IncomingMessage& message) {
  const auto& sender = message.credentials;
  if (sender && sender->uid == ::getuid()) return *sender;
  throw Error(Errc::permission_denied,
              fmt::format("process {} of user {} cannot use a session of user {}", sender ? sender->pid : 0,
                          sender ? sender->uid : 0, ::getuid()),
              "run it as the user who started the session");
}

// Whatever one process does, others can join.
void check_joins(const std::map<Owner, Participant>& participants, pid_t pid) {
  const auto joins =
      std::ranges::count_if(participants, [pid](const auto& each) { return each.second.info.pid == pid; });
  if (joins < kMostJoins) return;
  throw Error(Errc::limit_reached, fmt::format("process {} has joined the session {} times", pid, joins),
              "join once, and copy the Session");
}

void check_name(const std::string& name) {
  if (is_display_name(name)) return;
  throw Error(Errc::corrupt, "the name of a joining participant is empty, too long or has control characters",
              "let all processes of a session use the same drover");
}

// The pid comes from the kernel, the start time from the process itself. If they match after the pidfd was opened,
// the pidfd refers to the sender and not to a later process with the same pid.
Fd open_pidfd_of(const Credentials& sender, std::uint64_t start_time, const Connection& connection) {
  if (sender.pid == 0) {
    throw Error(Errc::unsupported, "a process in another pid namespace tried to join the session",
                "run all processes of a session in one container, or share the pid namespace");
  }
  Fd pidfd = open_pidfd(sender.pid);
  const auto seen = process_start_time(sender.pid);
  if (connection.is_hung_up() || has_ended(pidfd) || !seen) {
    throw Error(Errc::peer_lost, fmt::format("process {} ended before it could join the session", sender.pid));
  }
  if (*seen == start_time) return pidfd;
  throw Error(Errc::unsupported,
              fmt::format("process {} reports the start time {}, but the keeper (process {}) reads {}", sender.pid,
                          start_time, ::getpid(), *seen),
              "mount /proc for all processes of a session, and run them in one pid and one time namespace");
}

}  // namespace

Keeper::Keeper(KeeperSettings settings, Fd starter) : settings_(std::move(settings)), starter_(std::move(starter)) {
  poller_.add(starter_.get(), {.kind = PollKey::Kind::starter});
  watch_signals();
  if (settings_.name.empty()) {
    invite_application();
  } else {
    door_.emplace(settings_.name, poller_);
  }
}

void Keeper::run() {
  greet();
  note_idleness();
  for (bool has_more = false; !is_done(); has_more = work()) {
    for (const PollKey key : poller_.wait(has_more ? Deadline::after({}) : next_deadline())) handle(key);
    if (door_) door_->reopen();
    note_idleness();
    if (std::exchange(must_kill_workers_, false)) kill_workers();
  }
  clients_.clear();
}

void Keeper::greet() {
  Connection starter(starter_.duplicate());
  const Reply hello{.type = RequestType::hello};
  const bool is_heard = starter.send(encode(hello), {application_end_.get()}) == 0;
  application_end_.reset();
  if (!is_heard && settings_.name.empty()) begin_end();
}

// Watches the application from the start, whether it joins or not. Its connection is created here, so that no other
// process ever has the keeper's end: a child forked by the application could otherwise keep it open and hide the
// keeper's death.
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
  if (!end_deadline_ || !leaving_.empty()) return false;
  const auto& all = participants_.all();
  return end_deadline_->has_passed() ||
         std::ranges::none_of(all, [](const auto& each) { return each.second.info.is_worker; });
}

Deadline Keeper::next_deadline() {
  if (end_deadline_) return *end_deadline_;
  Deadline next = door_ ? door_->reopens_at() : Deadline::never();
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
      case PollKey::Kind::listener:
        if (door_) door_->accept_all([this](Fd socket) { take_visitor(std::move(socket)); });
        return;
      case PollKey::Kind::connection: return on_connection(key.number);
      case PollKey::Kind::process: return on_process(key.number);
    }
  } catch (const std::exception& error) {  // a failure with one client must not affect the others
    log(LogLevel::error, error.what());
    if (key.kind == PollKey::Kind::connection) drop(key.number);
  }
}

// The starter sends nothing; it closes its end after joining or giving up.
void Keeper::on_starter() {
  poller_.remove(starter_.get());
  starter_.reset();
  const bool is_waited_for = std::ranges::any_of(
      clients_, [](const auto& each) { return each.second.is_application && each.second.is_announced; });
  if (is_waited_for) begin_end();
}

// SIGTERM or SIGINT. Not read, since its details do not matter.
void Keeper::on_signal() {
  poller_.remove(signals_.get());
  begin_end();
}

void Keeper::take_visitor(Fd socket) {
  const Credentials visitor = peer_credentials(socket);
  Connection connection(std::move(socket));
  if (visitor.uid == ::geteuid()) {
    add_client({.connection = std::move(connection)});
    return;
  }
  log(LogLevel::warn, "refused a process of another user; user", visitor.uid);
  const Error refusal(
      Errc::permission_denied,
      fmt::format("process {} of user {} cannot use a session of user {}", visitor.pid, visitor.uid, ::geteuid()),
      "run it as the user who started the session");
  static_cast<void>(connection.send(encode(failure_reply({}, refusal))));
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
    objects_.wake_all_later();  // waiters may be alone now
  }
  Participant* const participant = participants_.find(at->second.owner);
  if (participant != nullptr) participants_.set_silent(*participant);
  const bool was_application = participant != nullptr && participant->is_application;
  clients_.erase(at);
  if (was_application) begin_end();  // it has executed another program, which cannot use the session
}

// 0 is the application, which is watched even before it joins.
void Keeper::on_process(std::uint64_t incarnation) {
  if (incarnation == 0) {
    poller_.remove(starter_pidfd_.get());
    begin_end();
  } else if (const Participant* const dead = participants_.find_incarnation(incarnation)) {
    const std::uint64_t connection = dead->connection;
    depart(dead->info.number, true);
    drop(connection);  // a forked child may still have the other end
  }
}

// Whether nothing is left to recover; otherwise `work` does the rest.
bool Keeper::depart(Owner number, bool is_dead) {
  Participant* const leaving = participants_.find(number);
  if (leaving == nullptr) return true;
  poller_.remove(leaving->pidfd.get());
  if (const auto client = clients_.find(leaving->connection); client != clients_.end()) {
    client->second.owner = kNobody;
  }
  if (leaving->is_application) begin_end();
  ipc::Departure departure(objects_, number, is_dead ? leaving->info.pid : 0);
  if (departure.work()) {
    leaving_.push_back({.departure = std::move(departure), .number = number});
    return false;
  }
  participants_.remove(number);
  objects_.wake_all_later();
  return true;
}

// Recovers for a moment; false if there is nothing left to do. A session that ends needs no recovery.
bool Keeper::work() {
  const Deadline slice = Deadline::after(kSlice);
  do {
    if (leaving_.empty()) {
      if (!objects_.work()) return false;
      continue;
    }
    if (!end_deadline_ && leaving_.front().departure.work()) continue;
    const Leaving gone = std::move(leaving_.front());
    leaving_.pop_front();
    participants_.remove(gone.number);
    objects_.wake_all_later();  // all, since any waiter may be alone now
    if (gone.reply && clients_.contains(gone.client)) send(gone.client, {.reply = *gone.reply, .owned_fd = {}});
  } while (!slice.has_passed());
  return true;
}

// Frees the name at once: opening it now starts a new session. Workers are killed after the reply has been sent,
// since that takes a while.
void Keeper::begin_end() {
  if (end_deadline_) return;
  end_deadline_ = Deadline::after(kLongestEnd);
  participants_.set_ending();
  objects_.wake_all();
  if (door_) door_->close();
  must_kill_workers_ = true;
}

// With their descendants, which would otherwise be orphaned. Some are stopped first; if this process is killed
// meanwhile, their lifelines wake the workers, which end by themselves.
void Keeper::kill_workers() {
  std::vector<process::TreeRoot> workers;
  for (const auto& [number, participant] : participants_.all()) {
    if (participant.info.is_worker)
      workers.push_back({.pid = participant.info.pid,
                         .pidfd = participant.pidfd.get(),
                         .mark = process::assignment_of(participant.info.pid, kMarkVariable)});
  }
  static_cast<void>(process::kill_trees(workers, Deadline::after(kTimeToKill)));
}

// A forked child of a participant has its connection but is not the participant.
void Keeper::check_owner(const Client& client, const Credentials& sender) {
  const Participant* const participant = participants_.find(client.owner);
  if (participant == nullptr || participant->info.pid == sender.pid) return;
  throw Error(Errc::forked,
              fmt::format("process {} used the connection of process {}", sender.pid, participant->info.pid),
              "start processes with drover instead of fork, so that each joins the session");
}

void Keeper::answer(std::uint64_t id, IncomingMessage& message) {
  Client& client = clients_.at(id);
  Request request{.sequence = 0};
  bool is_understood = false;
  try {
    request = read_request(message);
    const Credentials sender = check_sender(message);
    is_understood = true;
    check_owner(client, sender);
    Outgoing outgoing =
        request.type == RequestType::join ? join(client, request, sender) : perform(client, request, message);
    if (has_reply(request.type) && !outgoing.is_later) send(id, std::move(outgoing));
  } catch (const Error& error) {
    // Drops a client that breaks the protocol, or a visitor that sends a request for participants only.
    const bool is_hostile = !is_understood || (client.owner == kNobody && error.code() == Errc::corrupt);
    if (is_hostile) log(LogLevel::warn, error.what());
    if (is_hostile || has_reply(request.type)) {
      send(id, {.reply = failure_reply(request, error), .owned_fd = {}, .is_last = is_hostile});
    }
  }
}

// The kernel limits the descriptors in flight of a user. If the limit is reached, undoes the request and sends an
// error, which needs no descriptor.
void Keeper::send(std::uint64_t id, Outgoing outgoing) {
  Client& client = clients_.at(id);
  const int fd = outgoing.owned_fd.is_open() ? outgoing.owned_fd.get() : outgoing.fd;
  int failure = client.connection.send(encode(outgoing.reply), {fd, outgoing.lifeline.get()});
  const bool is_out_of_resources = failure == ETOOMANYREFS || failure == ENOMEM || failure == ENOBUFS;
  if (fd >= 0 && is_out_of_resources) {
    take_back(client, outgoing.reply);
    const Error error = error_from_errno(failure, "sendmsg", "a descriptor for a client");
    const Request request{.type = outgoing.reply.type, .sequence = outgoing.reply.sequence};
    failure = client.connection.send(encode(failure_reply(request, error)));
  }
  if (failure != 0 || outgoing.is_last) drop(id);
}

void Keeper::take_back(const Client& client, const Reply& reply) {
  Participant* const participant = participants_.find(client.owner);
  if (participant == nullptr) return;
  if (reply.type == RequestType::join) {
    depart(client.owner);
    return;
  }
  tables_.undo(*participant, reply);
}

Outgoing Keeper::perform(Client& client, const Request& request, IncomingMessage& message) {
  if (end_deadline_) throw Error(Errc::peer_lost, "the session is ending", "start or open it again");
  switch (request.type) {
    case RequestType::list: return tables_.list(request);
    case RequestType::describe: return describe(request);
    case RequestType::end: return end(client, request);
    case RequestType::drop: return tables_.drop_kept(request);
    case RequestType::kept: return tables_.next_kept(request);
    default: break;
  }
  Participant* const participant = participants_.find(client.owner);
  if (participant == nullptr) {
    throw Error(Errc::corrupt, fmt::format("a visitor of a session asked to {}", to_string(request.type)),
                "join the session first");
  }
  if (request.type == RequestType::invite) return invite(request);
  if (request.type != RequestType::leave) return tables_.perform(*participant, request, message);
  if (depart(participant->info.number)) return {.reply = reply_to(request), .owned_fd = {}};
  leaving_.back().client = client.id;
  leaving_.back().reply = reply_to(request);
  return {.reply = reply_to(request), .owned_fd = {}, .is_later = true};
}

Outgoing Keeper::join(Client& client, const Request& request, const Credentials& sender) {
  if (end_deadline_) throw Error(Errc::peer_lost, "the session is ending", "start or open it again");
  if (client.owner != kNobody) throw Error(Errc::corrupt, "a participant asked to join again");
  Participant joining{.info = {.pid = sender.pid, .start_time = request.number},
                      .is_application = client.is_application};
  joining.info.name = client.announced_name.empty() ? request.name : client.announced_name;
  check_name(joining.info.name);
  check_joins(participants_.all(), sender.pid);
  joining.info.is_worker = client.is_announced && !client.is_application;
  joining.pidfd = open_pidfd_of(sender, request.number, client.connection);
  joining.connection = client.id;
  Fd lifeline = joining.info.is_worker ? lifeline_.tie_to(sender.pid) : Fd();
  const Participant& joined = participants_.add(std::move(joining), client.is_announced);
  client.is_announced = false;
  client.owner = joined.info.number;
  try {
    poller_.add(joined.pidfd.get(), {.kind = PollKey::Kind::process, .number = joined.info.incarnation});
  } catch (const Error&) {  // the death of every participant must be noticed
    depart(client.owner);
    throw;
  }
  Reply reply = reply_to(request);
  reply.owner = joined.info.number;
  reply.number = joined.info.incarnation;
  reply.text = settings_.name;
  return {.reply = reply, .fd = participants_.page_file().get(), .owned_fd = {}, .lifeline = std::move(lifeline)};
}

Outgoing Keeper::invite(const Request& request) {
  check_name(request.name);
  auto [ours, theirs] = Connection::make_pair();
  participants_.announce();
  try {
    add_client({.connection = std::move(ours), .is_announced = true, .announced_name = request.name});
  } catch (...) {
    participants_.retract();
    throw;
  }
  return {.reply = reply_to(request), .owned_fd = std::move(theirs)};
}

Outgoing Keeper::describe(const Request& request) const {
  Outgoing outgoing = tables_.describe(request);
  outgoing.reply.text = settings_.name;
  outgoing.reply.counts.idle_limit_s = static_cast<std::uint64_t>(settings_.idle_limit.count());
  return outgoing;
}

Outgoing Keeper::end(const Client& client, const Request& request) {
  const std::uint32_t present = participants_.population().present;
  const bool is_allowed = client.owner != kNobody || request.number != 0 || present == 0;
  if (!is_allowed) {
    throw Error(Errc::busy, fmt::format("session '{}' has {} participants", settings_.name, present),
                "let them leave, or end it by force, which kills its workers and fails the calls of others");
  }
  begin_end();
  return {.reply = reply_to(request), .owned_fd = {}};
}

}  // namespace drover::session
