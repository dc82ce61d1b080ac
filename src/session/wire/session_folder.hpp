// session/wire/session_folder.hpp: where the named sessions of a user have their sockets and locks.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "drover/base/fd.hpp"

namespace drover {

/// Throws `Errc::invalid_argument`, with the rules, unless `name` can be the name of a session: 1 to 63 letters,
/// digits, '-', '_' and '.', the first a letter or digit.
void check_session_name(const std::string& name);

/// The folder `drover` in $XDG_RUNTIME_DIR where that belongs to this user, else /tmp/drover-UID. In it, a session
/// has NAME.sock (where its keeper listens), NAME.lock (locked by its keeper as long as that lives, by whatever it
/// dies) and NAME.log. All is done relative to the open folder, so nobody can put another one in its place.
class SessionFolder {
 public:
  /// Opens it, and makes it if it is not there. Throws `Errc::permission_denied` if it is a link, belongs to another
  /// user or is open to others.
  [[nodiscard]] static SessionFolder open();
  /// The same, but nothing if it is not there.
  [[nodiscard]] static std::optional<SessionFolder> find();

  /// Its path, for people.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// The names for which there is a socket or a lock, in order; whether a keeper is behind them is another question.
  [[nodiscard]] std::vector<std::string> names() const;

  /// A connection to the keeper; nothing if there is none, or its queue of connections is full, as of one that is
  /// stopped. `is_full` says which.
  [[nodiscard]] std::optional<Fd> connect(const std::string& name, bool* is_full = nullptr) const;
  /// The lock of the name; nothing while a keeper has it. Gone when the descriptor is closed.
  [[nodiscard]] std::optional<Fd> try_lock(const std::string& name) const;
  /// Writes into the lock who holds it: this process. Requires: it is held.
  static void sign(const Fd& lock) noexcept;
  /// The process that holds the lock of the name; nothing if nobody does, or it has not said who it is.
  [[nodiscard]] std::optional<pid_t> holder(const std::string& name) const;
  /// A socket that listens under the name, in place of a stale one. Requires: the lock is held.
  [[nodiscard]] Fd listen(const std::string& name) const;
  /// The file for what the keeper has to say, empty.
  [[nodiscard]] Fd open_log(const std::string& name) const;
  /// Removes what the session has here; its log only if it is empty. Requires: the lock is held.
  void remove(const std::string& name) const noexcept;
  /// The same if `lock` is still the lock of the name. It is not if somebody removed its file, as systems do that
  /// clean up /tmp: then the name may have another keeper.
  void remove_if_held(const std::string& name, const Fd& lock) const noexcept;
  /// Removes what killed keepers left of this name.
  void remove_if_stale(const std::string& name) const;

 private:
  SessionFolder(Fd folder, std::string path) noexcept;
  [[nodiscard]] bool is_still_there(const Fd& file, const std::string& entry) const noexcept;
  void remove_entry(const std::string& entry) const noexcept;

  Fd folder_;
  std::string path_;
};

}  // namespace drover
