#include "tensor/memory/backoff_poller.hpp"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/own_thread.hpp"
#include "base/signals_blocked.hpp"
#include "base/thread.hpp"
#include "drover/base/log.hpp"

namespace drover::tensor {
namespace {

constexpr int kMostPeriods = 16;

}  // namespace

struct BackoffPoller::State {
  State(std::chrono::milliseconds every, std::function<bool()> task) : period(every), poll(std::move(task)) {}

  // Clears is_running under the mutex just before the thread ends, so that a later `start` starts another thread.
  void run() DROVER_EXCLUDES(mutex) {
    while (sleep()) {
      const bool has_more = poll();
      const MutexLock lock(mutex);
      is_running = has_more || is_started;
      if (!is_running) return;
    }
  }

  // Waits for the time of the next poll, without the mutex; false if it is to stop.
  bool sleep() DROVER_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    periods = is_started ? 1 : std::min(2 * periods, kMostPeriods);
    is_started = false;
    const auto until = std::chrono::steady_clock::now() + periods * period;
    const auto is_over = [&]() DROVER_REQUIRES(mutex) { return is_stopping || (is_started && periods > 1); };
    while (!is_over() && changed.wait_until(mutex, until) == std::cv_status::no_timeout) continue;
    return !is_stopping;
  }

  const std::chrono::milliseconds period;
  const std::function<bool()> poll;
  Mutex mutex;
  ConditionVariable changed;
  bool is_running DROVER_GUARDED_BY(mutex) = false;
  bool is_stopping DROVER_GUARDED_BY(mutex) = false;
  bool is_started DROVER_GUARDED_BY(mutex) = false;  // since the last sleep
  int periods DROVER_GUARDED_BY(mutex) = 1;          // of the current sleep
};

BackoffPoller::BackoffPoller(std::chrono::milliseconds period, std::function<bool()> poll)
    : state_(std::make_shared<State>(period, std::move(poll))), process_(::getpid()) {}

BackoffPoller::~BackoffPoller() { stop(); }

void BackoffPoller::start() noexcept {
  const MutexLock threads(mutex_);
  {
    const MutexLock lock(state_->mutex);
    state_->is_started = true;
    if (state_->is_stopping) return;
    if (state_->is_running && state_->periods > 1) state_->changed.notify_all();
    if (state_->is_running) return;
    state_->is_running = true;
  }
  try {
    if (thread_.joinable()) thread_.join();  // it has ended, or is about to
    const SignalsBlocked blocked;
    thread_ = start_thread("the thread that gives memory back", [state = state_] {
      const OwnThread own;
      state->run();
    });
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
    const MutexLock lock(state_->mutex);
    state_->is_running = false;
  }
}

// In a forked child the mutex may stay locked by a thread that does not exist there.
void BackoffPoller::stop() noexcept DROVER_NO_THREAD_ANALYSIS {
  if (process_ != ::getpid()) {
    if (thread_.joinable()) thread_.detach();
    return;
  }
  const MutexLock threads(mutex_);
  {
    const MutexLock lock(state_->mutex);
    state_->is_stopping = true;
  }
  state_->changed.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace drover::tensor
