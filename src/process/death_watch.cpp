#include "process/death_watch.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <deque>
#include <exception>
#include <thread>
#include <utility>

#include "base/sys.hpp"
#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/base/mutex.hpp"
#include "drover/process/process_tree.hpp"

namespace drover {
namespace {

constexpr std::chrono::seconds kTimeToKill{5};
constexpr std::chrono::milliseconds kLook{1000};

struct Dependence {
  Fd pidfd;
  std::string reason;
};

}  // namespace

struct DeathWatch::State {
  Fd epoll;
  std::function<void(const std::string&)> last_words;
  Mutex mutex;
  std::deque<Dependence> dependences DROVER_GUARDED_BY(mutex);  // addresses stay
  std::string parent_reason;                                    // set before `parent`
  std::atomic<pid_t> parent = 0;

  [[noreturn]] void run() noexcept {
    for (;;) {
      epoll_event event{};
      const int count = ::epoll_wait(epoll.get(), &event, 1, static_cast<int>(kLook.count()));
      if (count == 1) end(static_cast<const Dependence*>(event.data.ptr)->reason);
      if (const pid_t expected = parent; expected != 0 && ::getppid() != expected) end(parent_reason);
      if (count < 0 && errno != EINTR) std::this_thread::sleep_for(kLook);  // somebody closed our descriptor
    }
  }

  [[noreturn]] void end(const std::string& reason) const noexcept {
    log(LogLevel::error, reason);
    last_words(reason);
    end_with_everything_below();
  }
};

DeathWatch::DeathWatch(std::function<void(const std::string& reason)> last_words) : state_(new State) {
  state_->last_words = std::move(last_words);
  state_->epoll = Fd(sys::call("epoll_create1", ::epoll_create1, int{EPOLL_CLOEXEC}));
  if (!state_->epoll.is_open()) throw_errno("epoll_create1", "the watch over the parent's life");
  sigset_t all{};
  sigset_t before{};
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_] { state->run(); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void DeathWatch::depend_on(Fd pidfd, std::string reason) {
  const MutexLock lock(state_->mutex);
  auto& added = state_->dependences.emplace_back(Dependence{std::move(pidfd), std::move(reason)});
  epoll_event event{.events = EPOLLIN, .data = {.ptr = &added}};
  if (sys::call("epoll_ctl", ::epoll_ctl, state_->epoll.get(), EPOLL_CTL_ADD, added.pidfd.get(), &event) != 0) {
    throw_errno("epoll_ctl", added.reason);
  }
}

void DeathWatch::depend_on_parent(Fd pidfd, pid_t parent, const std::string& reason) {
  depend_on(std::move(pidfd), reason);
  state_->parent_reason = reason;
  state_->parent = parent;
}

void end_with_everything_below() noexcept {
  try {
    static_cast<void>(kill_descendants(Deadline::after(kTimeToKill)));
  } catch (const std::exception& error) {
    log(LogLevel::error, error.what());
  }
  // The group goes in one step, so that nobody in it can start another in between.
  if (::getpgrp() == ::getpid()) ::kill(0, SIGKILL);
  for (;;) ::kill(::getpid(), SIGKILL);
}

}  // namespace drover
