#include "session/keeper/session_tables.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::session {
namespace {

[[noreturn]] void throw_wrong_count(const IncomingMessage& message, const std::string& what) {
  throw Error(Errc::corrupt, fmt::format("the {} came with {} descriptors", what, message.fds.size()),
              "let all processes of a session use the same drover");
}

// The descriptor that came with a request, if any. More than one means a foreign sender rather than too many open
// files.
Fd take_file(IncomingMessage& message, const std::string& what) {
  if (message.fds.size() > 1) throw_wrong_count(message, what);
  if (message.has_lost_fds) {
    throw Error(
        Errc::limit_reached,
        fmt::format("the keeper (process {}) has too many open files to take the {}", ::getpid(), what),
        "raise the hard limit of open files (ulimit -Hn 65536) before starting the session, or release slabs");
  }
  if (message.fds.empty()) return {};
  struct stat facts{};
  const int fd = message.fds.front().get();
  if (::fstat(fd, &facts) == 0 && !S_ISSOCK(facts.st_mode) && !S_ISFIFO(facts.st_mode) && ::isatty(fd) == 0)
    return std::move(message.fds.front());
  throw Error(Errc::invalid_argument, fmt::format("the {} is a socket, a pipe or a terminal", what),
              "pass a descriptor of memory");
}

}  // namespace

Outgoing SessionTables::perform(Participant& participant, const Request& request, IncomingMessage& message) {
  const Owner number = participant.info.number;
  switch (request.type) {
    case RequestType::create: return create(participant, request, message);
    case RequestType::open:
      return hand_over(participant, request, request.handle, objects_.open(request.handle, number));
    case RequestType::close:
      objects_.close(request.handle, number);
      release_file(participant, request.handle.slab);
      break;
    case RequestType::file:
      return {.reply = reply_to(request), .fd = objects_.file_of(request.handle, number).get(), .owned_fd = {}};
    case RequestType::deposit: return deposit(request, message);
    case RequestType::fetch:
      return {.reply = reply_to(request), .fd = deposits_.find(request.number).get(), .owned_fd = {}};
    case RequestType::withdraw: deposits_.remove(request.number); break;
    case RequestType::keep: kept_.keep(request.kept, number); break;
    case RequestType::recall: return recall(request);
    default:
      throw Error(Errc::corrupt, fmt::format("a participant asked to {}", to_string(request.type)),
                  "let all processes of a session use the same drover");
  }
  return {.reply = reply_to(request), .owned_fd = {}};
}

void SessionTables::undo(Participant& participant, const Reply& reply) {
  if (reply.type != RequestType::create && reply.type != RequestType::open) return;
  objects_.close(reply.handle, participant.info.number);
  release_file(participant, reply.handle.slab);
}

Outgoing SessionTables::create(Participant& participant, const Request& request, IncomingMessage& message) {
  Fd file = take_file(message, fmt::format("file of a {}", to_string(request.spec.kind)));
  const ObjectHandle handle =
      objects_.create(request.spec, participant.info.number, participants_.population().departed, std::move(file));
  return hand_over(participant, request, handle, request.spec);
}

// The memory file goes along with the first object in it that the participant opens; the participant closes it with
// the last. Both sides count the same.
Outgoing SessionTables::hand_over(Participant& participant, const Request& request, const ObjectHandle& handle,
                                  const ObjectSpec& spec) {
  Outgoing outgoing{.reply = reply_to(request), .owned_fd = {}};
  outgoing.reply.handle = handle;
  outgoing.reply.spec = spec;
  if (++participant.slabs[handle.slab] == 1) outgoing.fd = objects_.slab(handle.slab).file.get();
  return outgoing;
}

void SessionTables::release_file(Participant& participant, std::uint32_t number) {
  const auto slab = participant.slabs.find(number);
  if (slab != participant.slabs.end() && --slab->second == 0) participant.slabs.erase(slab);
}

Outgoing SessionTables::deposit(const Request& request, IncomingMessage& message) {
  Fd slab = take_file(message, fmt::format("slab '{}'", request.name));
  if (!slab.is_open()) throw_wrong_count(message, "slab '" + request.name + "'");
  Reply reply = reply_to(request);
  reply.number = deposits_.add(std::move(slab), request.name, request.number);
  return {.reply = reply, .owned_fd = {}};
}

Outgoing SessionTables::list(const Request& request) const {
  Reply reply = reply_to(request);
  if (const auto slab = deposits_.next(request.number)) {
    reply.number = slab->number;
    reply.text = slab->label;
    reply.counts.slab_bytes = slab->bytes;
  }
  return {.reply = reply, .owned_fd = {}};
}

Outgoing SessionTables::describe(const Request& request) const {
  Reply reply = reply_to(request);
  reply.counts = {.objects = objects_.size(),
                  .object_bytes = objects_.bytes(),
                  .slabs = deposits_.size() + objects_.file_count(),
                  .slab_bytes = deposits_.bytes() + objects_.file_bytes(),
                  .idle_limit_s = 0};
  return {.reply = reply, .fd = participants_.page_file().get(), .owned_fd = {}};
}

Outgoing SessionTables::recall(const Request& request) const {
  Reply reply = reply_to(request);
  reply.kept = kept_.find(request.kept.info.name);
  return {.reply = reply, .owned_fd = {}};
}

Outgoing SessionTables::drop_kept(const Request& request) {
  kept_.drop(request.kept.info.name);
  return {.reply = reply_to(request), .owned_fd = {}};
}

Outgoing SessionTables::next_kept(const Request& request) const {
  Reply reply = reply_to(request);
  if (const ipc::KeptEntry* const next = kept_.next(request.kept.info.name)) reply.kept.info = next->info;
  return {.reply = reply, .owned_fd = {}};
}

}  // namespace drover::session
