// session/keeper/session_door.hpp: the name of a session, and the socket under which it is found.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "session/keeper/poller.hpp"
#include "session/wire/session_folder.hpp"

namespace drover::session {

/// Holds the lock of a session's name and accepts connections at its socket. Its listener is an entry of the poller.
/// Not synchronised.
class SessionDoor {
 public:
  /// Takes the lock and listens. Throws `Errc::busy` if another keeper has the name.
  SessionDoor(const std::string& name, Poller& poller);
  /// Removes the files of the name unless `close` has done so; then releases the lock.
  ~SessionDoor();
  SessionDoor(const SessionDoor&) = delete;
  SessionDoor& operator=(const SessionDoor&) = delete;

  /// Accepts every connection that is waiting. If the process has too many open files, the next visitor gets an
  /// error; if the machine has, listening pauses.
  void accept_all(const std::function<void(Fd socket)>& take);
  /// When a pause ends; never if there is none.
  [[nodiscard]] Deadline reopens_at() const noexcept { return pause_.value_or(Deadline::never()); }
  /// Listens again if a pause has ended.
  void reopen();
  /// Stops listening and removes the files, so that the name is free for a new session.
  void close() noexcept;

 private:
  void refuse_for_lack_of_files();
  void pause();

  const std::string name_;
  Poller& poller_;
  Fd spare_;  // closed for a moment to accept the visitor that gets the error
  SessionFolder folder_;
  Fd lock_;
  Fd listener_;
  std::optional<Deadline> pause_;
};

}  // namespace drover::session
