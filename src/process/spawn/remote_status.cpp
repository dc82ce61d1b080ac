#include "process/spawn/remote_status.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "drover/base/clock.hpp"
#include "drover/base/log.hpp"

namespace drover::process::remote_status {
namespace {

// A template answers in microseconds unless it is forking, starved of CPU time or stopped.
constexpr std::chrono::seconds kRemotePatience{5};

// Receives a message; returns its length, 0 at end of file, or -1 if none comes.
ssize_t receive_some(int socket, std::span<char> into) noexcept {
  const auto deadline = Deadline::after(kRemotePatience);
  bool was_reset = false;  // reported once, before pending messages, if the template died without reading ours
  pollfd ready{.fd = socket, .events = POLLIN, .revents = 0};
  for (;;) {
    const int count = ::poll(&ready, 1, deadline.poll_timeout());
    if (count > 0) {
      const ssize_t length = ::recv(socket, into.data(), into.size(), MSG_DONTWAIT);
      if (length >= 0) return length;
      if (errno == ECONNRESET && !std::exchange(was_reset, true)) continue;
      if (errno != EINTR && errno != EAGAIN) return length;
    }
    if (deadline.has_passed()) return -1;
  }
}

}  // namespace

bool receive(int socket, siginfo_t& info) noexcept {
  for (;;) {
    EndedMessage message;
    std::array<char, sizeof message> bytes{};
    const ssize_t length = receive_some(socket, bytes);
    if (length < 0) log(LogLevel::warn, "a template does not report how a child ended; it may have been stopped");
    if (length <= 0) return false;
    std::memcpy(&message, bytes.data(), sizeof message);
    if (static_cast<std::size_t>(length) != sizeof message || message.kind != kEnded) continue;
    info.si_code = message.code;
    info.si_status = message.status;
    return true;
  }
}

void let_reap(int socket) noexcept {
  if (::send(socket, &kReap, sizeof kReap, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
  std::array<char, sizeof(EndedMessage)> bytes{};
  while (receive_some(socket, bytes) > 0) continue;  // earlier messages
}

}  // namespace drover::process::remote_status
