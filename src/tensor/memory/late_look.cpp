#include "tensor/memory/late_look.hpp"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/signals_blocked.hpp"
#include "drover/base/log.hpp"

namespace drover {

struct LateLook::State {
  State(std::chrono::milliseconds every, std::function<bool()> task, int seldom)
      : period(every), look(std::move(task)), most_seldom(seldom) {}

  // Ends in the moment in which it says so: who begins after that starts another.
  void run() DROVER_EXCLUDES(mutex) {
    while (sleep()) {
      const bool has_more = look();
      const MutexLock lock(mutex);
      is_running = has_more || is_asked;
      if (!is_running) return;
    }
  }

  // Waits for its time; false if it is told to stop. The mutex is given back while it waits.
  bool sleep() DROVER_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    periods = is_asked ? 1 : std::min(2 * periods, most_seldom);
    is_asked = false;
    const auto until = std::chrono::steady_clock::now() + periods * period;
    const auto is_over = [&]() DROVER_REQUIRES(mutex) { return is_stopping || (is_asked && periods > 1); };
    while (!is_over() && changed.wait_until(mutex, until) == std::cv_status::no_timeout) continue;
    return !is_stopping;
  }

  const std::chrono::milliseconds period;
  const std::function<bool()> look;
  const int most_seldom;
  Mutex mutex;
  ConditionVariable changed;
  bool is_running DROVER_GUARDED_BY(mutex) = false;
  bool is_stopping DROVER_GUARDED_BY(mutex) = false;
  bool is_asked DROVER_GUARDED_BY(mutex) = false;  // since it slept last
  int periods DROVER_GUARDED_BY(mutex) = 1;        // that it sleeps
};

LateLook::LateLook(std::chrono::milliseconds period, std::function<bool()> look, int most_seldom)
    : state_(std::make_shared<State>(period, std::move(look), most_seldom)), process_(::getpid()) {}

LateLook::~LateLook() { stop(); }

void LateLook::begin() noexcept {
  const MutexLock threads(mutex_);
  {
    const MutexLock lock(state_->mutex);
    state_->is_asked = true;
    if (state_->is_stopping) return;
    if (state_->is_running && state_->periods > 1) state_->changed.notify_all();
    if (state_->is_running) return;
    state_->is_running = true;
  }
  try {
    if (thread_.joinable()) thread_.join();  // it has ended, or is about to
    const SignalsBlocked blocked;
    thread_ = std::thread([state = state_] { state->run(); });
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
    const MutexLock lock(state_->mutex);
    state_->is_running = false;
  }
}

// In a forked child another thread may have held the mutex for ever, and nobody else is there.
void LateLook::stop() noexcept DROVER_NO_THREAD_ANALYSIS {
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

}  // namespace drover
