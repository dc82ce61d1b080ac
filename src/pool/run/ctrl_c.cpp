#include "pool/run/ctrl_c.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>

#include "drover/base/mutex.hpp"

namespace drover::pool::ctrl_c {
namespace {

constexpr std::size_t kMostPools = 64;  // further pools are not woken
constexpr int kNone = 0;

std::atomic<int> pressed{0};
// The eventfds plus one, so that 0 is none. The handler reads them.
std::array<std::atomic<int>, kMostPools> wake_fds{};

struct Installed {
  Mutex mutex;
  std::size_t pools DROVER_GUARDED_BY(mutex) = 0;
  bool is_ours DROVER_GUARDED_BY(mutex) = false;
};

Installed& installed() {
  static auto* const made = new Installed;  // never destroyed, because pools may be globals
  return *made;
}

void on_interrupt(int /*signal*/) {
  const int before = errno;
  if (pressed.fetch_add(1) > 0) {
    static_cast<void>(std::signal(SIGINT, SIG_DFL));
    static_cast<void>(std::raise(SIGINT));
  }
  for (const auto& fd : wake_fds) {
    if (const int number = fd.load(); number != kNone) static_cast<void>(::eventfd_write(number - 1, 1));
  }
  errno = before;
}

}  // namespace

void add(int wake) {
  Installed& all = installed();
  const MutexLock lock(all.mutex);
  bool is_added = false;
  for (std::size_t i = 0; i < wake_fds.size() && !is_added; ++i) {
    int none = kNone;
    is_added = wake_fds.at(i).compare_exchange_strong(none, wake + 1);
  }
  if (!is_added || all.pools++ > 0) return;
  pressed = 0;
  struct sigaction current{};
  ::sigaction(SIGINT, nullptr, &current);
  if (current.sa_handler != SIG_DFL) return;  // the program has its own handler
  struct sigaction ours{};
  ours.sa_handler = on_interrupt;
  ours.sa_flags = SA_RESTART;
  all.is_ours = ::sigaction(SIGINT, &ours, nullptr) == 0;
}

void remove(int wake) noexcept {
  Installed& all = installed();
  const MutexLock lock(all.mutex);
  for (auto& fd : wake_fds) {
    int number = wake + 1;
    if (!fd.compare_exchange_strong(number, kNone)) continue;
    if (--all.pools > 0 || !all.is_ours) return;
    all.is_ours = false;
    struct sigaction standard{};
    standard.sa_handler = SIG_DFL;
    ::sigaction(SIGINT, &standard, nullptr);
    return;
  }
}

int count() noexcept { return pressed.load(); }

}  // namespace drover::pool::ctrl_c
