#include "drover/process/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <csignal>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "process/inspect/memory_kills.hpp"
#include "process/inspect/pidfd.hpp"
#include "process/inspect/process_tree.hpp"
#include "process/spawn/remote_status.hpp"
#include "process/spawn/spawn.hpp"
#include "process/spawn/spawner.hpp"

namespace drover {
namespace {

// A process in an uninterruptible call, as with a failing GPU, may not die when killed; a destructor must not wait
// for it forever.
constexpr std::chrono::seconds kChildTimeToDie{10};

void reap(pid_t pid) noexcept {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED) != 0) {
    if (errno == EINTR) continue;
    log(LogLevel::warn, "a child process could not be reaped, since other code reaps all children; it is process",
        pid);
    return;
  }
}

ExitStatus status_from(const siginfo_t& info, KillReason reason) {
  if (info.si_code == CLD_EXITED) return ExitStatus::exited(info.si_status);
  return ExitStatus::killed(info.si_status, info.si_code == CLD_DUMPED, reason);
}

bool is_sigkill(const siginfo_t& info) { return info.si_code == CLD_KILLED && info.si_status == SIGKILL; }

}  // namespace

std::string own_executable() {
  std::array<char, PATH_MAX> path{};
  const auto length = sys::call("readlink", ::readlink, "/proc/self/exe", path.data(), path.size());
  if (length < 0) throw_errno("readlink", "/proc/self/exe");
  const std::string target(path.data(), static_cast<std::size_t>(length));
  // A program that was replaced while running, as by an upgrade, is still reachable through the link itself.
  return target.ends_with(" (deleted)") ? "/proc/self/exe" : target;
}

ChildProcess ChildProcess::spawn(const SpawnOptions& options) {
  if (auto child = spawn_by_spawner(options)) return std::move(*child);
  return spawn_by_clone(options);
}

std::optional<ChildProcess> ChildProcess::spawn_by_spawner(const SpawnOptions& options) {
  const auto spawner = process::current_spawner();
  if (!spawner) return std::nullopt;
  const auto memory_kills_before = process::memory_kills();
  auto spawned = spawner->spawn(options);
  if (!spawned) return std::nullopt;
  ChildProcess child(spawned->pid, std::move(spawned->pidfd));
  child.remote_ = std::move(spawned->remote);
  child.pipes_ = std::move(spawned->pipes);
  child.memory_kills_before_ = memory_kills_before;
  return child;
}

ChildProcess ChildProcess::spawn_by_clone(const SpawnOptions& options) {
  const auto memory_kills_before = process::memory_kills();
  process::Spawned spawned = drover::process::spawn(options);
  ChildProcess child(spawned.pid, std::move(spawned.pidfd));
  child.pipes_ = std::move(spawned.pipes);
  child.memory_kills_before_ = memory_kills_before;
  return child;
}

ChildProcess::ChildProcess(pid_t pid, Fd pidfd) noexcept : pid_(pid), parent_(::getpid()), pidfd_(std::move(pidfd)) {}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      parent_(other.parent_),
      pidfd_(std::move(other.pidfd_)),
      remote_(std::move(other.remote_)),
      pipes_(std::move(other.pipes_)),
      ended_(other.ended_),
      mark_(std::move(other.mark_)),
      memory_kills_before_(other.memory_kills_before_),
      was_killed_by_us_(other.was_killed_by_us_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, 0);
    parent_ = other.parent_;
    pidfd_ = std::move(other.pidfd_);
    remote_ = std::move(other.remote_);
    pipes_ = std::move(other.pipes_);
    ended_ = other.ended_;
    mark_ = std::move(other.mark_);
    memory_kills_before_ = other.memory_kills_before_;
    was_killed_by_us_ = other.was_killed_by_us_;
  }
  return *this;
}

ChildProcess::~ChildProcess() { end(); }

Fd ChildProcess::take_pipe(int number) {
  require(number >= 0 && std::cmp_less(number, pipes_.size()), "a standard stream has the number 0, 1 or 2");
  return std::move(pipes_[static_cast<std::size_t>(number)]);
}

void ChildProcess::check_process() const {
  if (parent_ == ::getpid()) return;
  throw Error(
      Errc::forked,
      fmt::format("process {} is a child of process {}, from which process {} was forked", pid_, parent_, ::getpid()),
      "leave it to the process that started it");
}

std::optional<ExitStatus> ChildProcess::wait(Deadline deadline) {
  require(pid_ != 0, "wait was called on a moved-from ChildProcess");
  check_process();
  if (ended_) return ended_;
  pollfd ready{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  for (;;) {
    const int count = sys::call("poll", ::poll, &ready, nfds_t{1}, deadline.poll_timeout());
    if (count > 0) break;
    if (count < 0 && errno != EINTR) throw_errno("poll", fmt::format("process {}", pid_));
    if (count == 0 && deadline.has_passed()) return std::nullopt;
  }
  ended_ = remote_.is_open() ? reap_remote() : reap_own();
  return ended_;
}

ExitStatus ChildProcess::reap_own() {
  siginfo_t info{};
  if (sys::retry("waitid", ::waitid, P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0) {
    throw_errno("waitid", fmt::format("process {}", pid_));
  }
  return status_from(info, is_sigkill(info) ? reason_of_kill() : KillReason::unknown);
}

// If the template is gone, this process may have adopted the child, as workers adopt orphans. Otherwise only a kill
// by this process is known.
ExitStatus ChildProcess::reap_remote() {
  siginfo_t info{};
  const bool is_told = process::remote_status::receive(remote_.get(), info);
  if (is_told) process::remote_status::let_reap(remote_.get());
  remote_.reset();
  if (!is_told && (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0)) {
    return was_killed_by_us_ ? ExitStatus::killed(SIGKILL, false, KillReason::parent) : ExitStatus::unknown();
  }
  return status_from(info, is_sigkill(info) ? reason_of_kill() : KillReason::unknown);
}

KillReason ChildProcess::reason_of_kill() const {
  return was_killed_by_us_ ? KillReason::parent : process::judge_kill(memory_kills_before_, process::memory_kills());
}

void ChildProcess::kill(int signal) {
  if (pid_ == 0 || ended_) return;
  check_process();
  // A signal after its end did not end it.
  if (signal == SIGKILL) was_killed_by_us_ = was_killed_by_us_ || !process::pidfd_has_ended(pidfd_.get());
  if (sys::call("pidfd_send_signal", process::pidfd_send_signal, pidfd_.get(), signal) != 0 && errno != ESRCH) {
    throw_errno("pidfd_send_signal", fmt::format("process {}", pid_));
  }
}

WaitResult ChildProcess::kill_tree(Deadline deadline) { return kill_trees(std::array{this}, deadline); }

WaitResult ChildProcess::kill_trees(std::span<ChildProcess* const> children, Deadline deadline) {
  std::vector<process::TreeRoot> roots;
  for (ChildProcess* const child : children) {
    if (child->pid_ == 0 || child->ended_) continue;
    child->check_process();
    child->was_killed_by_us_ = child->was_killed_by_us_ || !process::pidfd_has_ended(child->pidfd_.get());
    roots.push_back({.pid = child->pid_, .pidfd = child->pidfd_.get(), .mark = child->mark_});
  }
  return process::kill_trees(roots, deadline);
}

// Uses plain calls, since it must work whatever a test makes fail. Signals go by pidfd: if other code reaped the
// child, its pid may belong to another process by now.
void ChildProcess::end() noexcept {
  if (pid_ == 0 || ended_ || parent_ != ::getpid()) return;
  static_cast<void>(process::pidfd_send_signal(pidfd_.get(), SIGKILL));
  if (!process::pidfd_wait(pidfd_.get(), Deadline::after(kChildTimeToDie))) {
    log(LogLevel::error, "a killed child process does not end and is left behind, stuck in the kernel; it is process",
        pid_);
  } else if (remote_.is_open()) {
    process::remote_status::let_reap(remote_.get());
    remote_.reset();
    static_cast<void>(::waitpid(pid_, nullptr, WNOHANG));  // an adopted orphan
  } else {
    reap(pid_);
  }
  pid_ = 0;
}

}  // namespace drover
