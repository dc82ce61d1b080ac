#include "session/client/session_state.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "ipc/ledger/keepable_leases.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/registry/object_kinds.hpp"
#include "session/wire/process_identity.hpp"

namespace drover::session {
namespace {

// More than a keeper needs for killing its workers.
constexpr std::chrono::seconds kKeeperGrace{10};

void check_inside(const Reply& reply, std::size_t slab_bytes) {
  const std::size_t bytes = sizeof(ipc::ObjectHeader) + ipc::info_of(reply.spec.kind).layout_bytes(reply.spec);
  if (bytes <= slab_bytes && reply.handle.offset <= slab_bytes - bytes && reply.handle.offset % ipc::kCacheLine == 0)
    return;
  throw Error(Errc::corrupt,
              fmt::format("the shared object {} of {} bytes lies outside its memory file of {} bytes",
                          reply.handle.to_string(), bytes, slab_bytes),
              "let all processes of a session use the same drover");
}

}  // namespace

SessionState::SessionState(Fd connection, const std::string& participant_name, Duration patience)
    : link_(std::move(connection), patience) {
  Request request{.type = RequestType::join, .name = participant_name};
  request.number = process_start_time(::getpid()).value_or(0);
  Answer answer = link_.ask(request);
  try {
    if (answer.reply.owner == kNobody)
      throw Error(Errc::corrupt, "the keeper assigned no number to this participant");
    page_ = PageView(answer.file);
  } catch (const Error&) {  // leaves if it cannot map the page
    link_.tell({.type = RequestType::leave});
    throw;
  }
  name_ = answer.reply.text;
  incarnation_ = answer.reply.number;
  lifeline_ = std::move(answer.lifeline);
  link_.set_session(&name_, &page_);
  set_life(page_.life());
  set_self(answer.reply.owner);
}

SessionState::~SessionState() {
  if (self() == kNobody) {                 // a forked child: keeper and connection belong to its parent
    static_cast<void>(keeper_.release());  // NOLINT(bugprone-unused-return-value): leaked on purpose
    return;
  }
  leave();
  await_keeper();
}

OpenObject SessionState::create(const ObjectSpec& spec) {
  static_cast<void>(require_self());
  const MutexLock lock(mutex_);
  if (ipc::info_of(spec.kind).is_single) {
    const auto at = std::ranges::find_if(openings_, [&](const auto& each) { return each.first.kind == spec.kind; });
    if (at != openings_.end()) return open_again(at->second);
  }
  return take_over(link_.ask({.type = RequestType::create, .spec = spec}));
}

OpenObject SessionState::create(const ObjectSpec& spec, const Fd& file) {
  require(file.is_open(), "the file of a new object is an empty descriptor");
  static_cast<void>(require_self());
  const MutexLock lock(mutex_);
  return take_over(link_.ask({.type = RequestType::create, .spec = spec}, file.get()));
}

OpenObject SessionState::open(const ObjectHandle& handle) {
  static_cast<void>(require_self());
  const MutexLock lock(mutex_);
  if (const auto at = openings_.find(handle); at != openings_.end()) return open_again(at->second);
  return take_over(link_.ask({.type = RequestType::open, .handle = handle}));
}

OpenObject SessionState::open_again(Opening& opening) {
  ++opening.count;
  return opening.object;
}

// Replies of the keeper are validated like all external data: a wrong offset would be a wild pointer.
OpenObject SessionState::take_over(Answer answer) {
  const Reply& reply = answer.reply;
  const ObjectHandle& handle = reply.handle;
  try {
    MappedSlab& slab = slabs_[handle.slab];
    if (answer.file.is_open()) slab.memory = Mapping::shared(answer.file, check_memory_file(answer.file));
    check_inside(reply, slab.memory.size());
    ++slab.objects;
    Opening opening{.object = {.handle = handle, .spec = reply.spec, .data = slab.memory.data() + handle.offset}};
    opening.count = 1;
    return openings_.emplace(handle, opening).first->second.object;
  } catch (...) {
    if (const auto slab = slabs_.find(handle.slab); slab != slabs_.end() && slab->second.objects == 0)
      slabs_.erase(slab);
    link_.tell({.type = RequestType::close, .handle = handle});
    throw;
  }
}

void SessionState::close(const ObjectHandle& handle) noexcept {
  if (self() == kNobody) return;  // before the mutex, which a thread that the fork did not copy may hold forever
  try {
    const MutexLock lock(mutex_);
    const auto at = openings_.find(handle);
    if (at == openings_.end() || --at->second.count > 0) return;
    openings_.erase(at);
    if (const auto slab = slabs_.find(handle.slab); --slab->second.objects == 0) slabs_.erase(slab);
    link_.tell({.type = RequestType::close, .handle = handle});
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

// Offers the leases once no earlier request can still be performed, and releases them without the mutex, since the
// last one closes its slab.
void SessionState::keep(std::string_view name, std::span<const std::byte> record, std::string_view description,
                        std::span<Lease> leases) {
  Request request{.type = RequestType::keep, .kept = ipc::make_kept_entry(name, record, description)};
  static_cast<void>(require_self());
  const ipc::KeepableLeases keepable(leases, *this);
  request.kept.leases = keepable.names();
  {
    const MutexLock lock(mutex_);
    link_.settle();
    keepable.offer([&] { link_.ask(request); });
  }
  keepable.give_away();
}

Recalled SessionState::recall(std::string_view name) {
  const Request request{.type = RequestType::recall, .kept = ipc::make_kept_entry(name, {}, {})};
  return ipc::recall_leases(shared_from_this(), [&] { return ask(request).reply.kept; });
}

std::vector<KeptInfo> SessionState::kept() {
  return ask_kept([this](const Request& request) { return ask(request); });
}

void SessionState::drop(std::string_view name) {
  ask({.type = RequestType::drop, .kept = ipc::make_kept_entry(name, {}, {})});
}

void SessionState::check() const {
  if (self() == kNobody) {
    throw Error(
        Errc::peer_lost,
        fmt::format("process {} was forked from a participant of a session and is not one itself", ::getpid()),
        "start processes with drover instead of fork, so that each joins the session");
  }
  if (is_over() || link_.is_hung_up()) throw link_.lost_error();
}

void SessionState::own_keeper(ChildProcess keeper) { keeper_ = std::make_unique<ChildProcess>(std::move(keeper)); }

Answer SessionState::ask(const Request& request, int fd) {
  static_cast<void>(require_self());
  const MutexLock lock(mutex_);
  return link_.ask(request, fd);
}

Fd SessionState::ask_for_file(const Request& request) {
  Answer answer = ask(request);
  if (!answer.file.is_open()) throw Error(Errc::corrupt, "the keeper's reply has no descriptor");
  return std::move(answer.file);
}

void SessionState::end() {
  ask({.type = RequestType::end, .number = 1});
  const Deadline deadline = Deadline::after(kKeeperGrace);
  pollfd hung_up{.fd = link_.fd(), .events = 0, .revents = 0};
  while (::poll(&hung_up, 1, deadline.poll_timeout()) <= 0) {
    if (!deadline.has_passed()) continue;
    throw Error(Errc::timed_out, fmt::format("the keeper (process {}) does not end", keeper_pid()),
                "a worker may be stuck in the kernel; kill the keeper to abandon the session");
  }
}

void SessionState::leave() noexcept {
  try {
    if (page_.is_ending() || link_.is_hung_up()) return;
    ask({.type = RequestType::leave});
  } catch (const std::exception& error) {
    log(LogLevel::info, error.what());  // the keeper is gone already
  }
}

// Destroying the ChildProcess kills a keeper that does not end.
void SessionState::await_keeper() noexcept {
  if (!keeper_) return;
  try {
    static_cast<void>(keeper_->wait(Deadline::after(kKeeperGrace)));
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

}  // namespace drover::session
