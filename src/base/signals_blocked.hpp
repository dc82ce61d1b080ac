// base/signals_blocked.hpp: starts threads that receive no signals.
#pragma once

#include <csignal>

namespace drover {

/// Threads started in its scope receive no signals: handlers belong to the program and run on its threads.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all{};
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace drover
