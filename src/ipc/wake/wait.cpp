#include "drover/ipc/wait.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <memory>

#include <fmt/format.h>

#include "base/activity.hpp"
#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/wake/bridge.hpp"
#include "ipc/wake/sleep_on_many.hpp"

namespace drover {
namespace {

constexpr int kSpins = 256;

}  // namespace

/// One call of `wait`.
class Waiting {
 public:
  Waiting(std::span<const WaitSource> sources, Deadline deadline) : sources_(sources), deadline_(deadline) {}

  std::vector<std::size_t> run() {
    for (int spins = 0; spins < kSpins; ++spins) {
      auto ready = ready_now();
      if (!ready.empty() || deadline_.has_passed()) return ready;
      ipc::relax();
    }
    const ActivityMark mark("wait");
    return has_fds() ? wait_on_descriptors() : wait_on_bells();
  }

 private:
  [[nodiscard]] bool has_fds() const {
    return std::ranges::any_of(sources_, [](const WaitSource& source) { return source.fd_ >= 0; });
  }

  [[nodiscard]] std::vector<std::size_t> ready_now() const {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      const WaitSource& source = sources_[i];
      if (source.fd_ >= 0 ? is_readable(source.fd_) : source.is_ready_()) ready.push_back(i);
    }
    return ready;
  }

  static bool is_readable(int fd) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    const int count = sys::retry("poll", ::poll, &entry, nfds_t{1}, 0);
    if (count < 0) throw_errno("poll", fmt::format("descriptor {}", fd));
    if ((entry.revents & POLLNVAL) != 0) {
      throw Error(Errc::invalid_argument, fmt::format("descriptor {} is not open", fd),
                  "keep it open until wait returns");
    }
    return count > 0;
  }

  std::vector<std::size_t> wait_on_bells() {
    std::vector<ipc::Bell*> bells;
    for (const WaitSource& source : sources_) bells.push_back(source.bell_);
    for (;;) {
      std::vector<std::uint32_t> announced;
      for (ipc::Bell* const bell : bells) announced.push_back(ipc::announce_sleep(*bell));
      auto ready = ready_now();
      if (!ready.empty() || deadline_.has_passed()) {
        // The caller may not take anything, and another waiter may need the wake-up.
        for (const std::size_t place : ready) wake_one(*bells[place]);
        return ready;
      }
      ipc::sleep_on_many(bells, announced,
                         std::min<std::chrono::nanoseconds>(ipc::kLongestSleep, deadline_.remaining()));
      try {
        check();
      } catch (...) {
        for (ipc::Bell* const bell : bells) ipc::wake_always(*bell);  // another waiter may need the wake-up
        throw;
      }
    }
  }

  std::vector<std::size_t> wait_on_descriptors() {
    std::vector<std::unique_ptr<ipc::Bridge::Watch>> watches;
    std::vector<pollfd> fds;
    for (const WaitSource& source : sources_) {
      if (source.fd_ < 0) {
        watches.push_back(std::make_unique<ipc::Bridge::Watch>(
            ipc::BridgeTarget{.bell = source.bell_, .is_ready = source.is_ready_, .membership = source.membership_}));
      }
      fds.push_back({.fd = source.fd_ >= 0 ? source.fd_ : watches.back()->fd(), .events = POLLIN, .revents = 0});
    }
    for (;;) {
      const int count = sys::call("poll", ::poll, fds.data(), nfds_t{fds.size()}, deadline_.poll_timeout());
      if (count < 0 && errno != EINTR) throw_errno("poll", fmt::format("{} sources", fds.size()));
      check();
      auto ready = ready_now();
      if (!ready.empty() || deadline_.has_passed()) return ready;
      for (const auto& watch : watches) watch->rearm();  // another consumer was faster
    }
  }

  void check() const {
    for (const WaitSource& source : sources_) {
      if (source.membership_ != nullptr) source.membership_->check();
    }
  }

  std::span<const WaitSource> sources_;
  Deadline deadline_;
};

WaitSource WaitSource::readable(int fd) {
  require(fd >= 0, "a descriptor to wait for must not be negative");
  WaitSource source;
  source.fd_ = fd;
  return source;
}

std::vector<std::size_t> wait(std::span<const WaitSource> sources, Deadline deadline) {
  require(!sources.empty(), "wait() was called without sources", "pass at least one source");
  return Waiting(sources, deadline).run();
}

std::vector<std::size_t> wait(std::initializer_list<WaitSource> sources, Deadline deadline) {
  return wait(std::span(sources.begin(), sources.size()), deadline);
}

}  // namespace drover
