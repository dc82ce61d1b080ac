#include "session/wire/session_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/config.hpp"
#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "session/wire/connection.hpp"
#include "session/wire/protocol.hpp"

namespace drover::session {
namespace {

constexpr int kBacklog = 128;

std::string lock_of(const std::string& name) { return name + ".lock"; }
std::string log_of(const std::string& name) { return name + ".log"; }
std::string socket_of(const std::string& name) { return name + ".sock"; }
// The socket is created under this name and renamed once it listens, so that a visible socket accepts connections.
std::string new_socket_of(const std::string& name) { return name + ".new"; }

bool is_letter_or_digit(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9');
}

bool is_session_name(const std::string& name) {
  return !name.empty() && name.size() <= kMostNameBytes && is_letter_or_digit(name.front()) &&
         std::ranges::all_of(name, [](char letter) {
           return is_letter_or_digit(letter) || letter == '-' || letter == '_' || letter == '.';
         });
}

bool belongs_to_us(const std::string& folder) {
  struct stat facts{};
  return ::stat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid();
}

// After sudo, the variable may still name the directory of another user.
std::string folder_path() {
  const auto runtime = environment_path("XDG_RUNTIME_DIR");
  if (runtime && runtime->starts_with('/') && belongs_to_us(*runtime)) return *runtime + "/drover";
  return fmt::format("/tmp/drover-{}", ::geteuid());
}

[[noreturn]] void throw_not_private(const std::string& path, const std::string& why) {
  throw Error(
      Errc::permission_denied, fmt::format("the directory of sessions {} {}", path, why),
      "remove it, or set XDG_RUNTIME_DIR to a directory of your own (mode 0700) for all processes of the session");
}

void check_private(const Fd& folder, const std::string& path) {
  struct stat facts{};
  if (sys::call("fstat", ::fstat, folder.get(), &facts) != 0) throw_errno("fstat", path);
  if (facts.st_uid != ::geteuid()) {
    throw_not_private(path, fmt::format("belongs to user {}, not to user {}", facts.st_uid, ::geteuid()));
  }
  if ((facts.st_mode & 0077U) != 0) {
    throw_not_private(path, fmt::format("is open to others (mode {:04o})", facts.st_mode & 07777U));
  }
}

// Empty if it is missing.
Fd open_folder(const std::string& path) {
  const auto open = [](const char* name) { return ::open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); };
  Fd folder(sys::retry("open", open, path.c_str()));
  if (folder.is_open()) {
    check_private(folder, path);
    return folder;
  }
  if (errno == ELOOP || errno == ENOTDIR) throw_not_private(path, "is a link or a file");
  if (errno == EACCES) throw_not_private(path, "cannot be opened: permission denied");
  if (errno != ENOENT) throw_errno("open", "the directory of sessions " + path);
  return folder;
}

// Neither waits for the other end of a pipe that lies there instead of a file, nor uses anything but a file.
Fd open_in(const Fd& folder, const std::string& entry, int flags) {
  const auto open = [](int at, const char* name, int how) { return ::openat(at, name, how, 0600); };
  constexpr int kAlways = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  Fd file(sys::retry("openat", open, folder.get(), entry.c_str(), flags | kAlways));
  struct stat facts{};
  const bool is_other = file.is_open() ? ::fstat(file.get(), &facts) == 0 && !S_ISREG(facts.st_mode) : errno == ENXIO;
  if (!is_other) return file;
  throw Error(Errc::corrupt, fmt::format("'{}' in the directory of sessions is not a plain file", entry),
              "remove it, and find out who put it there");
}

// Addresses go through the open directory, which makes them short and exact.
sockaddr_un address_of(const Fd& folder, const std::string& entry) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto path = fmt::format("/proc/self/fd/{}/{}", folder.get(), entry);
  require(path.size() < sizeof(address.sun_path), "the name of the session is too long for a socket");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Fd make_socket(int flags) {
  Fd made(sys::call("socket", ::socket, AF_UNIX, int{SOCK_SEQPACKET | SOCK_CLOEXEC} | flags, 0));
  if (!made.is_open()) throw_errno("socket", "the control socket of a session");
  return made;
}

void set_blocking(const Fd& socket) {
  const auto clear = [](int fd) { return ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK); };
  if (sys::call("fcntl", clear, socket.get()) != 0) throw_errno("fcntl(F_SETFL)", "the control socket of a session");
}

}  // namespace

void check_session_name(const std::string& name) {
  if (is_session_name(name)) return;
  throw Error(
      Errc::invalid_argument, fmt::format("'{}' is not a valid name of a session", name),
      fmt::format("use 1 to {} letters, digits, '-', '_' and '.', the first a letter or digit", kMostNameBytes));
}

SessionFolder::SessionFolder(Fd folder, std::string path) noexcept
    : folder_(std::move(folder)), path_(std::move(path)) {}

SessionFolder SessionFolder::open() {
  const std::string path = folder_path();
  if (sys::call("mkdir", ::mkdir, path.c_str(), mode_t{0700}) != 0 && errno != EEXIST) {
    throw_errno("mkdir", "the directory of sessions " + path);
  }
  Fd folder = open_folder(path);
  if (!folder.is_open()) throw_errno("open", "the directory of sessions " + path);
  return {std::move(folder), path};
}

std::optional<SessionFolder> SessionFolder::find() {
  const std::string path = folder_path();
  Fd folder = open_folder(path);
  if (!folder.is_open()) return std::nullopt;
  return SessionFolder(std::move(folder), path);
}

std::vector<std::string> SessionFolder::names() const {
  std::vector<std::string> found;
  const auto path = fmt::format("/proc/self/fd/{}", folder_.get());
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (!folder) throw_errno("opendir", "the directory of sessions " + path_);
  while (const dirent* const entry = ::readdir(folder.get())) {
    const std::string file = entry->d_name;
    const auto name = file.substr(0, file.rfind('.'));
    const bool is_ours = file == socket_of(name) || file == lock_of(name) || file == new_socket_of(name);
    if (is_ours && is_session_name(name)) found.push_back(name);
  }
  std::ranges::sort(found);
  const auto again = std::ranges::unique(found);
  found.erase(again.begin(), again.end());
  return found;
}

std::optional<Fd> SessionFolder::connect(const std::string& name, bool* is_full) const {
  Fd socket = make_socket(SOCK_NONBLOCK);  // a stopped keeper with a full backlog would block connect
  const sockaddr_un address = address_of(folder_, socket_of(name));
  const auto* const plain = reinterpret_cast<const sockaddr*>(&address);
  if (sys::retry("connect", ::connect, socket.get(), plain, socklen_t{sizeof(address)}) != 0) {
    if (is_full != nullptr) *is_full = errno == EAGAIN;
    if (errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN) return std::nullopt;
    throw_errno("connect", fmt::format("session '{}' in {}", name, path_));
  }
  set_blocking(socket);
  return socket;
}

// An ending keeper removes the file while it holds the lock, so a process that opened it before must open it again.
std::optional<Fd> SessionFolder::try_lock(const std::string& name) const {
  for (;;) {
    Fd file = open_in(folder_, lock_of(name), O_RDWR | O_CREAT);
    if (!file.is_open()) throw_errno("openat", fmt::format("{}/{}", path_, lock_of(name)));
    if (sys::retry("flock", ::flock, file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::nullopt;
      throw_errno("flock", fmt::format("{}/{}", path_, lock_of(name)));
    }
    if (is_still_there(file, lock_of(name))) return file;
  }
}

// Only needed for ending a session by force, so a failure is not an error.
void SessionFolder::sign(const Fd& lock) noexcept {
  const auto text = std::to_string(::getpid());
  const bool is_written = ::ftruncate(lock.get(), 0) == 0 &&
                          ::pwrite(lock.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (!is_written) log(LogLevel::warn, "the keeper cannot write its id into its lock; error", errno);
}

std::optional<pid_t> SessionFolder::holder(const std::string& name) const {
  const Fd file = open_in(folder_, lock_of(name), O_RDONLY);
  if (!file.is_open()) {
    if (errno == ENOENT) return std::nullopt;
    throw_errno("openat", fmt::format("{}/{}", path_, lock_of(name)));
  }
  if (sys::retry("flock", ::flock, file.get(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) return std::nullopt;
  std::array<char, 32> text{};
  const auto length = ::pread(file.get(), text.data(), text.size(), 0);
  pid_t pid = 0;
  if (length > 0) std::from_chars(text.data(), text.data() + length, pid);
  return pid > 0 ? std::optional(pid) : std::nullopt;
}

Fd SessionFolder::listen(const std::string& name) const {
  const auto what = fmt::format("session '{}' in {}", name, path_);
  Fd socket = make_socket(SOCK_NONBLOCK);
  name_senders(socket);               // before any connection, which inherits it
  remove_entry(new_socket_of(name));  // left by a keeper that was killed at this point
  const sockaddr_un address = address_of(folder_, new_socket_of(name));
  const auto* const plain = reinterpret_cast<const sockaddr*>(&address);
  if (sys::call("bind", ::bind, socket.get(), plain, socklen_t{sizeof(address)}) != 0) throw_errno("bind", what);
  if (sys::call("listen", ::listen, socket.get(), kBacklog) != 0) throw_errno("listen", what);
  const auto rename = [](int at, const char* from, const char* to) { return ::renameat(at, from, at, to); };
  if (sys::call("renameat", rename, folder_.get(), new_socket_of(name).c_str(), socket_of(name).c_str()) != 0) {
    throw_errno("renameat", what);
  }
  return socket;
}

Fd SessionFolder::open_log(const std::string& name) const {
  Fd file = open_in(folder_, log_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND);
  if (!file.is_open()) throw_errno("openat", fmt::format("{}/{}", path_, log_of(name)));
  return file;
}

// Removes the lock last: while it exists, no other process creates or removes the others.
void SessionFolder::remove(const std::string& name) const noexcept {
  remove_entry(socket_of(name));
  remove_entry(new_socket_of(name));
  struct stat facts{};
  const bool is_log_empty =
      ::fstatat(folder_.get(), log_of(name).c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 && facts.st_size == 0;
  if (is_log_empty) remove_entry(log_of(name));
  remove_entry(lock_of(name));
}

void SessionFolder::remove_if_held(const std::string& name, const Fd& lock) const noexcept {
  if (is_still_there(lock, lock_of(name))) remove(name);
}

void SessionFolder::remove_if_stale(const std::string& name) const {
  if (const auto lock = try_lock(name)) remove(name);
}

bool SessionFolder::is_still_there(const Fd& file, const std::string& entry) const noexcept {
  struct stat ours{};
  struct stat there{};
  return ::fstat(file.get(), &ours) == 0 &&
         ::fstatat(folder_.get(), entry.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 && ours.st_dev == there.st_dev &&
         ours.st_ino == there.st_ino;
}

void SessionFolder::remove_entry(const std::string& entry) const noexcept {
  if (::unlinkat(folder_.get(), entry.c_str(), 0) != 0 && errno != ENOENT) {
    log(LogLevel::warn, "cannot remove a file of a session; error", errno);
  }
}

}  // namespace drover::session
