#include "drover/ipc/channel.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"

namespace drover {
namespace {

constexpr const char* kNoSocket = "this channel is closed or was moved from";
constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(int) * Channel::kMaxFds);
using ControlBuffer = std::array<std::byte, kControlBytes>;

void attach_fds(msghdr& header, ControlBuffer& control, std::span<const int> fds) {
  if (fds.empty()) return;
  header.msg_control = control.data();
  header.msg_controllen = CMSG_SPACE(fds.size_bytes());
  auto* const part = reinterpret_cast<cmsghdr*>(control.data());  // what CMSG_FIRSTHDR returns, but never null
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
}

// Requires: `fds` has room for kMaxFds, so that every descriptor is owned before anything can throw.
void take_fds(msghdr& header, std::vector<Fd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(number);
    }
  }
}

bool wait_ready(int fd, short events, Deadline deadline) {
  pollfd ready{.fd = fd, .events = events, .revents = 0};
  for (;;) {
    const int count = sys::call("poll", ::poll, &ready, nfds_t{1}, deadline.poll_timeout());
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) throw_errno("poll", fmt::format("channel on descriptor {}", fd));
    if (count == 0 && deadline.has_passed()) return false;
  }
}

// One message, or 0 for the end. If the other end closed without reading everything, the kernel reports that once as
// a reset, ahead of the messages that it still has for us; a retry receives those.
ssize_t receive_message(int fd, msghdr& header) {
  for (int resets = 0;; ++resets) {
    const auto length = sys::retry("recvmsg", ::recvmsg, fd, &header, int{MSG_CMSG_CLOEXEC});
    if (length >= 0) return length;
    if (errno != ECONNRESET) throw_errno("recvmsg", fmt::format("channel on descriptor {}", fd));
    if (resets > 0) return 0;
  }
}

void check_complete(const msghdr& header, bool is_empty) {
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    throw Error(Errc::limit_reached, "file descriptors sent to this process were dropped: it has too many open files",
                "raise the limit of open files (ulimit -n 65536) before starting the program");
  }
  if ((header.msg_flags & MSG_TRUNC) != 0) {
    throw Error(Errc::corrupt,
                fmt::format("a message of more than {} bytes came through a channel", Channel::kMaxBytes),
                "use the same version of drover at both ends");
  }
  if (is_empty) {
    throw Error(Errc::corrupt, "descriptors without a message came through a channel",
                "use the same version of drover at both ends");
  }
}

[[noreturn]] void throw_send_failure(std::size_t bytes, std::size_t fds) {
  throw_errno("sendmsg", fmt::format("a message of {} bytes and {} descriptors", bytes, fds));
}

}  // namespace

std::pair<Channel, Channel> Channel::make_pair() {
  std::array<int, 2> ends{};
  if (sys::call("socketpair", ::socketpair, AF_UNIX, int{SOCK_SEQPACKET | SOCK_CLOEXEC}, 0, ends.data()) != 0) {
    throw_errno("socketpair", "channel");
  }
  return {Channel(Fd(ends[0])), Channel(Fd(ends[1]))};
}

void Channel::send(std::string_view bytes, std::span<const int> fds) {
  if (send_once(bytes, fds, 0) < 0) throw_send_failure(bytes.size(), fds.size());
}

SendResult Channel::send(std::string_view bytes, std::span<const int> fds, Deadline deadline) {
  for (;;) {
    if (send_once(bytes, fds, MSG_DONTWAIT) >= 0) return SendResult::sent;
    if (errno == EPIPE || errno == ECONNRESET) return SendResult::peer_lost;
    if (errno != EAGAIN) throw_send_failure(bytes.size(), fds.size());
    if (deadline.has_passed() || !wait_ready(socket_.get(), POLLOUT, deadline)) return SendResult::timed_out;
  }
}

ssize_t Channel::send_once(std::string_view bytes, std::span<const int> fds, int flags) {
  require(socket_.is_open(), kNoSocket);
  require(!bytes.empty() && bytes.size() <= kMaxBytes, "a channel message must have 1 to 65536 bytes");
  require(fds.size() <= kMaxFds, "a channel message can carry at most 253 file descriptors");
  iovec payload{const_cast<char*>(bytes.data()), bytes.size()};  // NOLINT: sendmsg only reads
  alignas(cmsghdr) ControlBuffer control{};
  msghdr header{};
  header.msg_iov = &payload;
  header.msg_iovlen = 1;
  attach_fds(header, control, fds);
  return sys::retry("sendmsg", ::sendmsg, socket_.get(), &header, int{MSG_NOSIGNAL} | flags);
}

ReceiveResult Channel::receive(ChannelMessage& into, Deadline deadline) {
  require(socket_.is_open(), kNoSocket);
  into.bytes.clear();
  into.fds.clear();
  if (!wait_ready(socket_.get(), POLLIN, deadline)) return ReceiveResult::timed_out;
  std::vector<Fd> fds;
  fds.reserve(kMaxFds);
  std::array<char, kMaxBytes> bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init): only received bytes are read
  iovec payload{bytes.data(), bytes.size()};
  alignas(cmsghdr) ControlBuffer control{};
  msghdr header{};
  header.msg_iov = &payload;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const auto length = receive_message(socket_.get(), header);
  take_fds(header, fds);
  into.bytes.assign(bytes.data(), static_cast<std::size_t>(length));
  const bool is_end = length == 0 && fds.empty() && (header.msg_flags & MSG_CTRUNC) == 0;
  if (is_end) return ReceiveResult::peer_lost;
  check_complete(header, length == 0);
  into.fds = std::move(fds);
  return ReceiveResult::message;
}

}  // namespace drover
