// session/wire/session_folder.hpp: the directory with the sockets and locks of a user's named sessions.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "drover/base/fd.hpp"

namespace drover::session {

/// Throws `Errc::invalid_argument`, with the rules, unless `name` is a valid name of a session: 1 to 63 letters,
/// digits, '-', '_' and '.', the first a letter or digit.
void check_session_name(const std::string& name);

/// The directory `drover` in $XDG_RUNTIME_DIR if that belongs to this user, otherwise /tmp/drover-UID. It holds
/// NAME.sock (where a keeper listens), NAME.lock (locked by the keeper until it dies in any way) and NAME.log. All
/// operations are relative to the open directory, so it cannot be replaced by another one.
class SessionFolder {
 public:
  /// Opens the directory, creating it if missing. Throws `Errc::permission_denied` if it is a link, belongs to
  /// another user or is accessible to others.
  [[nodiscard]] static SessionFolder open();
  /// Opens the directory; nullopt if it is missing.
  [[nodiscard]] static std::optional<SessionFolder> find();

  /// Its path, for messages.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// The names with a socket or a lock, sorted, whether or not they have a keeper.
  [[nodiscard]] std::vector<std::string> names() const;

  /// Connects to a keeper; nullopt if there is none, or if its backlog is full, as when it is stopped. `is_full` says
  /// which.
  [[nodiscard]] std::optional<Fd> connect(const std::string& name, bool* is_full = nullptr) const;
  /// Takes the lock of a name, held until the descriptor is closed; nullopt while a keeper has it.
  [[nodiscard]] std::optional<Fd> try_lock(const std::string& name) const;
  /// Writes the id of this process into the lock. Requires: it is held.
  static void sign(const Fd& lock) noexcept;
  /// The process that holds the lock of a name; nullopt if none does or it has not signed the lock.
  [[nodiscard]] std::optional<pid_t> holder(const std::string& name) const;
  /// Listens under a name, replacing a stale socket. Requires: the lock is held.
  [[nodiscard]] Fd listen(const std::string& name) const;
  /// Creates an empty log file for the keeper.
  [[nodiscard]] Fd open_log(const std::string& name) const;
  /// Removes the files of a session, the log only if it is empty. Requires: the lock is held.
  void remove(const std::string& name) const noexcept;
  /// Does the same if `lock` is still the lock of the name. It is not if its file was removed, as by a clean-up of
  /// /tmp; then the name may have another keeper.
  void remove_if_held(const std::string& name, const Fd& lock) const noexcept;
  /// Removes the leftovers of killed keepers of this name.
  void remove_if_stale(const std::string& name) const;

 private:
  SessionFolder(Fd folder, std::string path) noexcept;
  [[nodiscard]] bool is_still_there(const Fd& file, const std::string& entry) const noexcept;
  void remove_entry(const std::string& entry) const noexcept;

  Fd folder_;
  std::string path_;
};

}  // namespace drover::session
