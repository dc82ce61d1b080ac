#include "device/fork_guard.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::device::fork_guard {
namespace {

std::atomic<bool> was_forked{false};

}  // namespace

void arm() {
  static const int failed =
      ::pthread_atfork(nullptr, nullptr, [] { was_forked.store(true, std::memory_order_relaxed); });
  if (failed != 0) throw error_from_errno(failed, "pthread_atfork", "the fork guard");
}

bool is_forked_child() noexcept { return was_forked.load(std::memory_order_relaxed); }

void check(std::source_location where) {
  if (is_forked_child()) fail(where);
}

void fail(std::source_location where) {
  throw Error(Errc::forked,
              fmt::format("process {} was forked from process {} after that process had initialised devices, "
                          "and devices do not survive a fork",
                          ::getpid(), ::getppid()),
              "start processes by spawning (in Python: the start method 'spawn', or drover's own), or fork before "
              "anything touches a device",
              where);
}

}  // namespace drover::device::fork_guard
