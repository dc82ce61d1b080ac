// base/thread.hpp: starts threads, and reports why one could not be started.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/sys.hpp"
#include "drover/base/error.hpp"

namespace drover {

/// A thread that runs `body`. Throws `Errc::limit_reached` if the system refuses one, naming `what` it is for. Tests
/// make it fail as "pthread_create".
template <class Body>
[[nodiscard]] std::thread start_thread(const std::string& what, Body body) {
  int failure = sys::injected("pthread_create");
  if (failure == 0) {
    try {
      return std::thread(std::move(body));
    } catch (const std::system_error& error) {
      failure = error.code().value();
    }
  }
  throw error_from_errno(failure, "pthread_create", what);
}

}  // namespace drover
