#include "session/keeper/lifeline.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/sys.hpp"
#include "drover/base/error.hpp"

namespace drover::session {

Lifeline::Lifeline() {
  std::array<int, 2> ends{};
  if (sys::call("pipe2", ::pipe2, ends.data(), O_CLOEXEC) != 0) throw_errno("pipe2", "the keeper");
  theirs_ = Fd(ends[0]);
  ours_ = Fd(ends[1]);
}

// The receiver of the signal is a property of the open file, so each process needs its own, which only opening anew
// makes.
Fd Lifeline::tie_to(pid_t process) const noexcept {
  std::array<char, 32> path{};
  static_cast<void>(std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", theirs_.get()));
  Fd tied(::open(path.data(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const bool is_tied = tied.is_open() && ::fcntl(tied.get(), F_SETOWN, process) == 0 &&
                       ::fcntl(tied.get(), F_SETSIG, SIGCONT) == 0 &&
                       ::fcntl(tied.get(), F_SETFL, O_ASYNC | O_NONBLOCK) == 0;
  return is_tied ? std::move(tied) : Fd();
}

}  // namespace drover::session
