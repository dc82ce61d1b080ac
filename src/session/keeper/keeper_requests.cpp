// What the keeper does for each request; the rest of the class is in keeper_loop.cpp.
#include <unistd.h>

#include <cerrno>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "session/keeper/keeper_loop.hpp"
#include "session/wire/process_identity.hpp"

namespace drover {
namespace {

Reply reply_to(const Request& request) { return {.type = request.type, .sequence = request.sequence}; }

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Request read_request(const IncomingMessage& message) {
  if (message.is_cut) {
    throw Error(Errc::corrupt, "a control message of a session is longer than any",
                "let all processes of a session use the same drover");
  }
  return parse_request(bytes_of(message.bytes));
}

// Checked for each message: a connection may pass from process to process, as the end of an invitation does.
Credentials check_sender(const IncomingMessage& message) {
  const auto& sender = message.credentials;
  if (sender && sender->uid == ::getuid()) return *sender;
  throw Error(Errc::permission_denied,
              fmt::format("process {} of user {} cannot use a session of user {}", sender ? sender->pid : 0,
                          sender ? sender->uid : 0, ::getuid()),
              "run it as the user who started the session");
}

void check_name(const std::string& name) {
  if (is_display_name(name)) return;
  throw Error(Errc::corrupt, "a participant wants to join whose name is empty, too long or has control characters",
              "let all processes of a session use the same drover");
}

[[noreturn]] void throw_wrong_count(const IncomingMessage& message, const std::string& what) {
  throw Error(Errc::corrupt, fmt::format("the {} came with {} descriptors", what, message.fds.size()),
              "let all processes of a session use the same drover");
}

// The descriptor that came with a request, if one did. More than one tells a foreign sender from too many open files.
Fd take_file(IncomingMessage& message, const std::string& what) {
  if (message.fds.size() > 1) throw_wrong_count(message, what);
  if (message.has_lost_fds) {
    throw Error(
        Errc::limit_reached,
        fmt::format("the keeper (process {}) has too many open files to take the {}", ::getpid(), what),
        "raise the hard limit of open files (ulimit -Hn 65536) before starting the session, or let go of slabs");
  }
  return message.fds.empty() ? Fd{} : std::move(message.fds.front());
}

// The pid comes from the kernel, the start time from the process itself. If they belong together after the pidfd was
// opened, the pidfd is of the process that asked, and of no later one with the same pid.
Fd open_pidfd_of(const Credentials& sender, std::uint64_t start_time, const Connection& connection) {
  if (sender.pid == 0) {
    throw Error(Errc::unsupported, "a process in another pid namespace wants to join the session",
                "run all processes of a session in one container, or share the pid namespace");
  }
  Fd pidfd = open_pidfd(sender.pid);
  const auto seen = process_start_time(sender.pid);
  if (connection.is_hung_up() || has_ended(pidfd) || !seen) {
    throw Error(Errc::peer_lost, fmt::format("process {} ended before it could join the session", sender.pid));
  }
  if (*seen == start_time) return pidfd;
  throw Error(Errc::unsupported,
              fmt::format("process {} says that it began at tick {}, and the keeper (process {}) sees {}", sender.pid,
                          start_time, ::getpid(), *seen),
              "let all processes of a session see /proc, and run them in one pid and one time namespace");
}

}  // namespace

// A child that a participant forked has its connection too, but is not the participant.
void Keeper::check_owner(const Client& client, const Credentials& sender) {
  const Participant* const participant = participants_.find(client.owner);
  if (participant == nullptr || participant->info.pid == sender.pid) return;
  throw Error(Errc::forked,
              fmt::format("process {} asks over the connection of process {}", sender.pid, participant->info.pid),
              "start processes by spawning, and let each join the session by itself");
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
    if (has_reply(request.type)) send(id, std::move(outgoing));
  } catch (const Error& error) {
    // Whoever does not speak as we do, or as a visitor asks for what only participants may, is not listened to again.
    const bool is_hostile = !is_understood || (client.owner == kNobody && error.code() == Errc::corrupt);
    if (is_hostile) log(LogLevel::warn, error.what());
    if (is_hostile || has_reply(request.type)) {
      send(id, {.reply = failure_reply(request, error), .owned_fd = {}, .is_last = is_hostile});
    }
  }
}

// Descriptors on their way are limited too, for all processes of a user together. Then what was done is undone, and
// the client is told; without the descriptor the reply goes through.
void Keeper::send(std::uint64_t id, Outgoing outgoing) {
  Client& client = clients_.at(id);
  const int fd = outgoing.owned_fd.is_open() ? outgoing.owned_fd.get() : outgoing.fd;
  int failure = client.connection.send(encode(outgoing.reply), fd);
  const bool is_out_of_resources = failure == ETOOMANYREFS || failure == ENOMEM || failure == ENOBUFS;
  if (fd >= 0 && is_out_of_resources) {
    take_back(client, outgoing.reply);
    const Error error = error_from_errno(failure, "sendmsg", "a descriptor that the keeper was to send");
    const Request request{.type = outgoing.reply.type, .sequence = outgoing.reply.sequence};
    failure = client.connection.send(encode(failure_reply(request, error)));
  }
  if (failure != 0 || outgoing.is_last) drop(id);
}

void Keeper::take_back(const Client& client, const Reply& reply) {
  Participant* const participant = participants_.find(client.owner);
  if (participant == nullptr) return;
  if (reply.type == RequestType::join) return depart(client.owner);
  if (reply.type != RequestType::create && reply.type != RequestType::open) return;
  objects_.close(reply.handle, client.owner);
  let_go(*participant, reply.handle.slab);
}

Keeper::Outgoing Keeper::perform(Client& client, const Request& request, IncomingMessage& message) {
  if (end_deadline_) throw Error(Errc::peer_lost, "the session is ending", "start or open it again");
  switch (request.type) {
    case RequestType::list: return list(request);
    case RequestType::describe: return describe(request);
    case RequestType::end: return end(client, request);
    case RequestType::drop: return drop_kept(request);
    case RequestType::kept: return next_kept(request);
    default: break;
  }
  Participant* const participant = participants_.find(client.owner);
  if (participant != nullptr) return perform_for(*participant, request, message);
  throw Error(Errc::corrupt, fmt::format("a visitor of a session asked to {}", to_string(request.type)),
              "join the session first");
}

Keeper::Outgoing Keeper::perform_for(Participant& participant, const Request& request, IncomingMessage& message) {
  const Owner number = participant.info.number;
  switch (request.type) {
    case RequestType::create: return create(participant, request, message);
    case RequestType::open:
      return hand_over(participant, request, request.handle, objects_.open(request.handle, number));
    case RequestType::close:
      objects_.close(request.handle, number);
      let_go(participant, request.handle.slab);
      break;
    case RequestType::file:
      return {.reply = reply_to(request), .fd = objects_.file_of(request.handle, number).get(), .owned_fd = {}};
    case RequestType::invite: return invite(request);
    case RequestType::deposit: return deposit(request, message);
    case RequestType::fetch:
      return {.reply = reply_to(request), .fd = deposits_.find(request.number).get(), .owned_fd = {}};
    case RequestType::withdraw: deposits_.remove(request.number); break;
    case RequestType::keep: return keep(participant, request);
    case RequestType::recall: return recall(request);
    case RequestType::leave: depart(number); break;
    default:
      throw Error(Errc::corrupt, fmt::format("a participant asked to {}", to_string(request.type)),
                  "let all processes of a session use the same drover");
  }
  return {.reply = reply_to(request), .owned_fd = {}};
}

Keeper::Outgoing Keeper::join(Client& client, const Request& request, const Credentials& sender) {
  if (end_deadline_) throw Error(Errc::peer_lost, "the session is ending", "start or open it again");
  if (client.owner != kNobody) throw Error(Errc::corrupt, "a participant asked to join again");
  Participant joining{.info = {.pid = sender.pid, .start_time = request.number},
                      .is_application = client.is_application};
  joining.info.name = client.announced_name.empty() ? request.name : client.announced_name;
  check_name(joining.info.name);
  joining.info.is_worker = client.is_announced && !client.is_application;
  joining.pidfd = open_pidfd_of(sender, request.number, client.connection);
  joining.connection = client.id;
  const Participant& joined = participants_.add(std::move(joining), client.is_announced);
  client.is_announced = false;
  client.owner = joined.info.number;
  try {
    poller_.add(joined.pidfd.get(), {.kind = PollKey::Kind::process, .number = joined.info.incarnation});
  } catch (const Error&) {  // nobody takes part whose death would go unseen
    depart(client.owner);
    throw;
  }
  Reply reply = reply_to(request);
  reply.owner = joined.info.number;
  reply.number = joined.info.incarnation;
  reply.text = settings_.name;
  return {.reply = reply, .fd = participants_.page_file().get(), .owned_fd = {}};
}

Keeper::Outgoing Keeper::create(Participant& participant, const Request& request, IncomingMessage& message) {
  Fd file = take_file(message, fmt::format("file of a {}", to_string(request.spec.kind)));
  const ObjectHandle handle =
      objects_.create(request.spec, participant.info.number, participants_.population().departed, std::move(file));
  return hand_over(participant, request, handle, request.spec);
}

// The memory file goes along with the first object in it that the participant opens; the participant lets go of it
// with the last, and both count the same.
Keeper::Outgoing Keeper::hand_over(Participant& participant, const Request& request, const ObjectHandle& handle,
                                   const ObjectSpec& spec) {
  Outgoing outgoing{.reply = reply_to(request), .owned_fd = {}};
  outgoing.reply.handle = handle;
  outgoing.reply.spec = spec;
  if (++participant.slabs[handle.slab] == 1) outgoing.fd = objects_.slab(handle.slab).file.get();
  return outgoing;
}

void Keeper::let_go(Participant& participant, std::uint32_t number) {
  const auto slab = participant.slabs.find(number);
  if (slab != participant.slabs.end() && --slab->second == 0) participant.slabs.erase(slab);
}

Keeper::Outgoing Keeper::invite(const Request& request) {
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

Keeper::Outgoing Keeper::deposit(const Request& request, IncomingMessage& message) {
  Fd slab = take_file(message, fmt::format("slab '{}'", request.name));
  if (!slab.is_open()) throw_wrong_count(message, "slab '" + request.name + "'");
  Reply reply = reply_to(request);
  reply.number = deposits_.add(std::move(slab), request.name, request.number);
  return {.reply = reply, .owned_fd = {}};
}

Keeper::Outgoing Keeper::list(const Request& request) const {
  Reply reply = reply_to(request);
  if (const auto slab = deposits_.next(request.number)) {
    reply.number = slab->number;
    reply.text = slab->label;
    reply.counts.slab_bytes = slab->bytes;
  }
  return {.reply = reply, .owned_fd = {}};
}

Keeper::Outgoing Keeper::describe(const Request& request) const {
  Reply reply = reply_to(request);
  reply.text = settings_.name;
  reply.counts = {.objects = objects_.size(),
                  .object_bytes = objects_.bytes(),
                  .slabs = deposits_.size() + objects_.file_count(),
                  .slab_bytes = deposits_.bytes() + objects_.file_bytes(),
                  .idle_limit_s = static_cast<std::uint64_t>(settings_.idle_limit.count())};
  return {.reply = reply, .fd = participants_.page_file().get(), .owned_fd = {}};
}

Keeper::Outgoing Keeper::keep(const Participant& participant, const Request& request) {
  kept_.keep(request.kept, participant.info.number);
  return {.reply = reply_to(request), .owned_fd = {}};
}

Keeper::Outgoing Keeper::recall(const Request& request) const {
  Reply reply = reply_to(request);
  reply.kept = kept_.find(request.kept.info.name);
  return {.reply = reply, .owned_fd = {}};
}

Keeper::Outgoing Keeper::drop_kept(const Request& request) {
  kept_.drop(request.kept.info.name);
  return {.reply = reply_to(request), .owned_fd = {}};
}

Keeper::Outgoing Keeper::next_kept(const Request& request) const {
  Reply reply = reply_to(request);
  if (const KeptEntry* const next = kept_.next(request.kept.info.name)) reply.kept.info = next->info;
  return {.reply = reply, .owned_fd = {}};
}

Keeper::Outgoing Keeper::end(const Client& client, const Request& request) {
  const std::uint32_t present = participants_.population().present;
  const bool is_allowed = client.owner != kNobody || request.number != 0 || present == 0;
  if (!is_allowed) {
    throw Error(Errc::busy, fmt::format("session '{}' has {} participants", settings_.name, present),
                "let them leave, or end it by force: its workers are killed and all others get errors");
  }
  begin_end();
  return {.reply = reply_to(request), .owned_fd = {}};
}

}  // namespace drover
