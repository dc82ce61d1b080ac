#include "drover/process/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <csignal>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"

namespace drover {
namespace {

// glibc's declarations of pidfd_open are too young for some systems we support.
int pidfd_open(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }
int pidfd_send_signal(int pidfd, int signal) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}

// Gives the child the descriptors asked for under the numbers asked for, and no other above standard error: a
// forgotten descriptor would keep shared and device memory alive.
class FileActions {
 public:
  explicit FileActions(const std::vector<std::pair<int, int>>& inherit) : FileActions() {
    int highest = STDERR_FILENO;
    for (const auto& [ours, theirs] : inherit) highest = std::max(highest, theirs);
    std::set<int> given;
    for (const auto& [ours, theirs] : inherit) {
      // Moved out of the way first, so that no number is overwritten before it was handed over.
      const auto lift = [](int fd, int least) { return ::fcntl(fd, F_DUPFD_CLOEXEC, least); };
      const auto& lifted = lifted_.emplace_back(sys::call("fcntl", lift, ours, highest + 1));
      if (!lifted.is_open()) throw_errno("fcntl(F_DUPFD_CLOEXEC)", fmt::format("inherited descriptor {}", ours));
      check(::posix_spawn_file_actions_adddup2(&actions_, lifted.get(), theirs), theirs);
      given.insert(theirs);
    }
    for (int number = STDERR_FILENO + 1; number < highest; ++number) {
      if (!given.contains(number)) check(::posix_spawn_file_actions_addclose(&actions_, number), number);
    }
    check(::posix_spawn_file_actions_addclosefrom_np(&actions_, highest + 1), highest + 1);
  }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  [[nodiscard]] const posix_spawn_file_actions_t* get() const noexcept { return &actions_; }

 private:
  // A constructor of its own, so that the actions are destroyed even if planning them throws.
  FileActions() { ::posix_spawn_file_actions_init(&actions_); }
  static void check(int error, int number) {
    if (error == 0) return;
    throw error_from_errno(error, "posix_spawn_file_actions", fmt::format("descriptor {} of the child", number));
  }

  posix_spawn_file_actions_t actions_{};
  std::vector<Fd> lifted_;
};

// The child begins with no signal blocked and none ignored, whatever the calling thread or its language runtime set.
class SpawnAttributes {
 public:
  SpawnAttributes() {
    ::posix_spawnattr_init(&attributes_);
    sigset_t none{};
    sigset_t all{};
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnAttributes() { ::posix_spawnattr_destroy(&attributes_); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;
  [[nodiscard]] const posix_spawnattr_t* get() const noexcept { return &attributes_; }

 private:
  posix_spawnattr_t attributes_{};
};

std::vector<std::string> merged_environment(const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> merged;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) merged.emplace_back(*entry);
  for (const auto& [key, value] : added) {
    const auto start = key + "=";
    std::erase_if(merged, [&](const std::string& entry) { return entry.starts_with(start); });
    merged.push_back(start + value);
  }
  return merged;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

int injected_or_spawn(pid_t* pid, const char* path, const FileActions& actions, char** arguments, char** variables) {
  if (const int error = sys::injected("posix_spawn"); error != 0) return error;
  const SpawnAttributes attributes;
  return ::posix_spawn(pid, path, actions.get(), attributes.get(), arguments, variables);
}

// A process in an uninterruptible call, as on a sick GPU, may not die when killed: a destructor must not wait for it
// for ever. Without a pidfd there is nothing to wait on but the reaping itself.
bool has_ended_soon(int pidfd) noexcept {
  if (pidfd < 0) return true;
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  pollfd ready{.fd = pidfd, .events = POLLIN, .revents = 0};
  while (::poll(&ready, 1, deadline.poll_timeout()) <= 0) {
    if (deadline.has_passed()) return false;
  }
  return true;
}

void reap(pid_t pid) noexcept {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED) != 0) {
    if (errno == EINTR) continue;
    log(LogLevel::warn, "a child process could not be reaped; somebody else waits for our children", pid);
    return;
  }
}

ExitStatus status_from(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return ExitStatus::exited(info.si_status);
  return ExitStatus::killed(info.si_status, info.si_code == CLD_DUMPED);
}

}  // namespace

std::string own_executable() {
  std::array<char, PATH_MAX> path{};
  const auto length = sys::call("readlink", ::readlink, "/proc/self/exe", path.data(), path.size());
  if (length < 0) throw_errno("readlink", "/proc/self/exe");
  const std::string target(path.data(), static_cast<std::size_t>(length));
  // A program replaced while it runs, as by an upgrade, is still to be had under the link itself.
  return target.ends_with(" (deleted)") ? "/proc/self/exe" : target;
}

ChildProcess ChildProcess::spawn(const SpawnOptions& options) {
  std::vector<std::string> arguments = {options.executable};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> variables = merged_environment(options.environment);
  const FileActions actions(options.inherit);
  pid_t pid = 0;
  const int error = injected_or_spawn(&pid, options.executable.c_str(), actions, pointers_to(arguments).data(),
                                      pointers_to(variables).data());
  if (error != 0) throw error_from_errno(error, "posix_spawn", fmt::format("program '{}'", options.executable));
  ChildProcess child(pid, Fd{});  // owns it from here on, whatever fails next
  child.pidfd_ = Fd(sys::call("pidfd_open", pidfd_open, pid));
  if (!child.pidfd_.is_open()) throw_errno("pidfd_open", fmt::format("process {} ('{}')", pid, options.executable));
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), pidfd_(std::move(other.pidfd_)), ended_(other.ended_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, 0);
    pidfd_ = std::move(other.pidfd_);
    ended_ = other.ended_;
  }
  return *this;
}

ChildProcess::~ChildProcess() { end(); }

std::optional<ExitStatus> ChildProcess::wait(Deadline deadline) {
  require(pid_ != 0, "wait was called on a ChildProcess that was moved from");
  if (ended_) return ended_;
  pollfd ready{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  for (;;) {
    const int count = sys::call("poll", ::poll, &ready, nfds_t{1}, deadline.poll_timeout());
    if (count > 0) break;
    if (count < 0 && errno != EINTR) throw_errno("poll", fmt::format("process {}", pid_));
    if (count == 0 && deadline.has_passed()) return std::nullopt;
  }
  siginfo_t info{};
  if (sys::retry("waitid", ::waitid, P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0) {
    throw_errno("waitid", fmt::format("process {}", pid_));
  }
  ended_ = status_from(info);
  return ended_;
}

void ChildProcess::kill(int signal) {
  if (pid_ == 0 || ended_) return;
  if (sys::call("pidfd_send_signal", pidfd_send_signal, pidfd_.get(), signal) != 0 && errno != ESRCH) {
    throw_errno("pidfd_send_signal", fmt::format("process {}", pid_));
  }
}

// Uses plain calls: it must work whatever a test makes fail, and a child left behind is never right. Signals go by
// pidfd wherever there is one: if somebody else reaped the child, its pid may name a stranger by now.
void ChildProcess::end() noexcept {
  if (pid_ == 0 || ended_) return;
  const bool is_handled =
      pidfd_.is_open() && (pidfd_send_signal(pidfd_.get(), SIGKILL) == 0 || errno == ESRCH);  // ended, even reaped
  if (!is_handled) ::kill(pid_, SIGKILL);
  if (!has_ended_soon(pidfd_.get())) {
    log(LogLevel::error, "a killed child process does not end; it is stuck in the kernel and stays behind", pid_);
  } else {
    reap(pid_);
  }
  pid_ = 0;
}

}  // namespace drover
