// pool/run/callback_thread.hpp: threads that complete futures and run their callbacks.
#pragma once

#include <exception>
#include <functional>

#include "drover/base/log.hpp"

namespace drover::detail {

/// While it exists, this thread completes futures and must not wait for one.
class CallbackThread {
 public:
  CallbackThread() noexcept;
  ~CallbackThread();
  CallbackThread(const CallbackThread&) = delete;
  CallbackThread& operator=(const CallbackThread&) = delete;
};

/// Runs a callback and logs what it throws.
inline void run_call(const std::function<void()>& call) noexcept {
  try {
    call();
  } catch (const std::exception& error) {
    log(LogLevel::error, error.what());
  } catch (...) {
    log(LogLevel::error, "a callback of a future threw something other than a std::exception");
  }
}

}  // namespace drover::detail
