#include "process/spawn/death_watch.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <deque>
#include <exception>
#include <thread>
#include <utility>

#include "base/signals_blocked.hpp"
#include "base/sys.hpp"
#include "base/thread.hpp"
#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/base/mutex.hpp"
#include "drover/process/child_process.hpp"
#include "process/inspect/pidfd.hpp"
#include "process/inspect/process_table.hpp"
#include "process/spawn/line_writer.hpp"

namespace drover::process {
namespace {

constexpr std::chrono::seconds kTimeToKill{5};
constexpr std::chrono::milliseconds kLook{1000};

struct Dependence {
  Fd pidfd;
  std::string reason;
  LogLevel level;
};

// False if the program has closed the descriptor and another file has its number.
bool is_a_death(const Fd& pidfd) noexcept {
  const bool names_a_process = pidfd_send_signal(pidfd.get(), 0) == 0 || errno == ESRCH || errno == EPERM;
  return names_a_process && pidfd_has_ended(pidfd.get());
}

}  // namespace

struct DeathWatch::State {
  Fd epoll;
  std::function<void(const std::string&)> last_words;
  Mutex mutex;
  std::deque<Dependence> dependences DROVER_GUARDED_BY(mutex);  // stable addresses
  std::string parent_reason;                                    // these three are set before `parent`
  LogLevel parent_level = LogLevel::error;
  std::uint64_t parent_start = 0;  // 0: also the parent according to the kernel
  std::atomic<pid_t> parent = 0;

  // An event is only a hint: the program may close descriptors that are not its own and then open others under their
  // numbers.
  [[noreturn]] void run() noexcept {
    for (;;) {
      epoll_event event{};
      const int count = ::epoll_wait(epoll.get(), &event, 1, static_cast<int>(kLook.count()));
      const bool is_interrupted = count < 0 && errno == EINTR;
      if (const Dependence* const dead = find_dead()) end(dead->reason, dead->level);
      if (const pid_t expected = parent; expected != 0 && !is_there(expected)) end(parent_reason, parent_level);
      if (count != 0 && !is_interrupted)
        std::this_thread::sleep_for(kLook);  // the descriptor belongs to another file
    }
  }

  [[nodiscard]] const Dependence* find_dead() noexcept DROVER_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    const auto dead = std::ranges::find_if(dependences, is_a_death, &Dependence::pidfd);
    return dead == dependences.end() ? nullptr : &*dead;
  }

  // According to the kernel, the parent of a process forked from a template is the template, which may end earlier.
  [[nodiscard]] bool is_there(pid_t expected) const noexcept {
    if (parent_start == 0) return ::getppid() == expected;
    const auto record = read_process(expected);
    if (!record) return errno == EMFILE || errno == ENFILE || errno == ENOMEM;  // unknown
    return record->start == parent_start && !record->has_ended();
  }

  // The reader of standard error may be the parent that died, so nothing here may block on it.
  [[noreturn]] void end(const std::string& reason, LogLevel level) const noexcept {
    set_log_sink(&log_nonblocking);
    last_words(reason);
    end_with_everything_below(reason, level);
  }
};

DeathWatch::DeathWatch(std::function<void(const std::string& reason)> last_words) : state_(new State) {
  state_->last_words = std::move(last_words);
  state_->epoll = Fd(sys::call("epoll_create1", ::epoll_create1, int{EPOLL_CLOEXEC}));
  if (!state_->epoll.is_open()) throw_errno("epoll_create1", "the thread that watches the parent");
  const SignalsBlocked blocked;  // inherited by the thread
  start_thread("the thread that watches the parent", [state = state_] { state->run(); }).detach();
}

void DeathWatch::depend_on(Fd pidfd, std::string reason, LogLevel level) {
  const MutexLock lock(state_->mutex);
  auto& added = state_->dependences.emplace_back(Dependence{std::move(pidfd), std::move(reason), level});
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (sys::call("epoll_ctl", ::epoll_ctl, state_->epoll.get(), EPOLL_CTL_ADD, added.pidfd.get(), &event) != 0) {
    throw_errno("epoll_ctl", added.reason);
  }
}

void DeathWatch::depend_on_parent(Fd pidfd, pid_t parent, const std::string& reason, LogLevel level) {
  depend_on(std::move(pidfd), reason, level);
  state_->parent_reason = reason;
  state_->parent_level = level;
  if (::getppid() != parent) {
    const auto record = read_process(parent);
    state_->parent_start = record ? record->start : 1;  // gone; its pidfd reports that too
  }
  state_->parent = parent;
}

void end_with_everything_below(const std::string& reason, LogLevel level) noexcept {
  try {
    static_cast<void>(kill_descendants(Deadline::after(kTimeToKill)));
  } catch (const std::exception& error) {
    log(LogLevel::error, error.what());
  }
  log(level, reason);
  // Kills the group in one step, so that no member can start another process in between.
  if (::getpgrp() == ::getpid()) ::kill(0, SIGKILL);
  for (;;) ::kill(::getpid(), SIGKILL);
}

}  // namespace drover::process
