#include "session/keeper/poller.hpp"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"

namespace drover::session {
namespace {

constexpr unsigned kKindShift = 56;

std::uint64_t to_word(PollKey key) { return (static_cast<std::uint64_t>(key.kind) << kKindShift) | key.number; }

PollKey from_word(std::uint64_t word) {
  return {.kind = static_cast<PollKey::Kind>(word >> kKindShift),
          .number = word & ((std::uint64_t{1} << kKindShift) - 1)};
}

}  // namespace

Poller::Poller() : epoll_(sys::call("epoll_create1", ::epoll_create1, int{EPOLL_CLOEXEC})) {
  if (!epoll_.is_open()) throw_errno("epoll_create1", "the keeper's loop");
}

void Poller::add(int fd, PollKey key) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = to_word(key)}};
  if (sys::call("epoll_ctl", ::epoll_ctl, epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw_errno("epoll_ctl", fmt::format("descriptor {}", fd));
  }
}

void Poller::remove(int fd) noexcept { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::vector<PollKey> Poller::wait(Deadline deadline) {
  std::array<epoll_event, 64> events{};
  const int count = sys::call("epoll_wait", ::epoll_wait, epoll_.get(), events.data(),
                              static_cast<int>(events.size()), deadline.poll_timeout());
  if (count < 0 && errno != EINTR) throw_errno("epoll_wait", "the keeper's loop");
  std::vector<PollKey> keys;
  for (int i = 0; i < count; ++i) keys.push_back(from_word(events.at(static_cast<std::size_t>(i)).data.u64));
  return keys;
}

}  // namespace drover::session
