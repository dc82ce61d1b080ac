#include "session/keeper/session_door.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "session/wire/connection.hpp"
#include "session/wire/protocol.hpp"

namespace drover::session {
namespace {

// For a machine that has no open file left.
constexpr std::chrono::milliseconds kListeningPause{100};

Fd open_spare() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

Fd accept(const char* call, const Fd& listener) {
  return Fd(sys::call(call, ::accept4, listener.get(), static_cast<sockaddr*>(nullptr),
                      static_cast<socklen_t*>(nullptr), int{SOCK_CLOEXEC}));
}

Fd lock_name(SessionFolder& folder, const std::string& name) {
  auto lock = folder.try_lock(name);
  if (!lock) throw Error(Errc::busy, fmt::format("session '{}' already has a keeper", name), "join it");
  SessionFolder::sign(*lock);
  return std::move(*lock);
}

}  // namespace

SessionDoor::SessionDoor(const std::string& name, Poller& poller)
    : name_(name),
      poller_(poller),
      spare_(open_spare()),
      folder_(SessionFolder::open()),
      lock_(lock_name(folder_, name)) {
  try {
    listener_ = folder_.listen(name_);
    poller_.add(listener_.get(), {.kind = PollKey::Kind::listener});
  } catch (...) {
    folder_.remove_if_held(name_, lock_);
    throw;
  }
}

SessionDoor::~SessionDoor() { close(); }

void SessionDoor::close() noexcept {
  if (!listener_.is_open()) return;
  poller_.remove(listener_.get());
  listener_.reset();
  // Only while the lock file is still in the directory: after its removal, the files may belong to another keeper.
  folder_.remove_if_held(name_, lock_);
}

void SessionDoor::accept_all(const std::function<void(Fd socket)>& take) {
  while (listener_.is_open()) {
    Fd socket = accept("accept4", listener_);
    if (socket.is_open()) {
      take(std::move(socket));
    } else if (errno == EMFILE || errno == ENFILE) {
      return refuse_for_lack_of_files();
    } else if (errno != EINTR && errno != ECONNABORTED) {
      if (errno != EAGAIN) throw_errno("accept4", "the control socket");
      return;
    }
  }
}

// A connection that stays in the queue would wake the loop again and again.
void SessionDoor::refuse_for_lack_of_files() {
  spare_.reset();
  Fd socket = accept("accept4 again", listener_);
  if (!socket.is_open()) {
    pause();
  } else {
    const Error refusal = error_from_errno(EMFILE, "accept4", "a new participant, in the keeper");
    static_cast<void>(Connection(std::move(socket)).send(encode(failure_reply({}, refusal))));
  }
  spare_ = open_spare();
}

void SessionDoor::pause() {
  if (errno != EMFILE && errno != ENFILE) return;
  poller_.remove(listener_.get());
  pause_ = Deadline::after(kListeningPause);
}

void SessionDoor::reopen() {
  if (!pause_ || !pause_->has_passed()) return;
  pause_.reset();
  if (listener_.is_open()) poller_.add(listener_.get(), {.kind = PollKey::Kind::listener});
}

}  // namespace drover::session
