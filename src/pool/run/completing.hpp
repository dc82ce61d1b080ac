// pool/run/completing.hpp: the thread that takes results in.
#pragma once

#include <exception>
#include <functional>

#include "drover/base/log.hpp"

namespace drover::detail {

/// While it lives, this thread completes futures and must not wait for one.
class CompletingThread {
 public:
  CompletingThread() noexcept;
  ~CompletingThread();
  CompletingThread(const CompletingThread&) = delete;
  CompletingThread& operator=(const CompletingThread&) = delete;
};

/// Runs what somebody left to be called. What it throws has nowhere to go but the log.
inline void run_call(const std::function<void()>& call) noexcept {
  try {
    call();
  } catch (const std::exception& error) {
    log(LogLevel::error, error.what());
  } catch (...) {
    log(LogLevel::error, "a call that was to follow a result threw something that is no std::exception");
  }
}

}  // namespace drover::detail
