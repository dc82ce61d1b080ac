#include "session/wire/connection.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "session/wire/protocol.hpp"

namespace drover::session {
namespace {

constexpr std::size_t kMostFds =
    4;  // one is valid; room for a few distinguishes too many sent from too many open files
constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int) * kMostFds);

void take_fds(const cmsghdr& part, std::vector<Fd>& fds) {
  const std::size_t count = (part.cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (std::size_t i = 0; i < count; ++i) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(&part) + i * sizeof(int), sizeof(int));
    fds.emplace_back(number);
    constexpr linger kNone{.l_onoff = 0, .l_linger = 0};  // or closing a foreign socket may wait for its peer
    ::setsockopt(number, SOL_SOCKET, SO_LINGER, &kNone, sizeof(kNone));
  }
}

// Requires: `into.fds` has room, so that every descriptor is owned before anything can throw.
void take_control(msghdr& header, IncomingMessage& into) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    if (part->cmsg_type == SCM_RIGHTS) take_fds(*part, into.fds);
    if (part->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(part), sizeof(sender));
    into.credentials = {.pid = sender.pid, .uid = sender.uid};
  }
}

ssize_t receive_once(int socket, msghdr& header) {
  const int flags = MSG_CMSG_CLOEXEC | MSG_DONTWAIT;
  const auto length = sys::retry("recvmsg", ::recvmsg, socket, &header, int{flags});
  // A reset is reported once, before the pending messages.
  return length < 0 && errno == ECONNRESET ? sys::retry("recvmsg", ::recvmsg, socket, &header, int{flags}) : length;
}

}  // namespace

Connection::Connection(Fd socket) : socket_(std::move(socket)) { name_senders(socket_); }

std::pair<Connection, Fd> Connection::make_pair() {
  std::array<int, 2> ends{};
  if (sys::call("socketpair", ::socketpair, AF_UNIX, int{SOCK_SEQPACKET | SOCK_CLOEXEC}, 0, ends.data()) != 0) {
    throw_errno("socketpair", "a control connection");
  }
  Fd theirs(ends[1]);
  return {Connection(Fd(ends[0])), std::move(theirs)};
}

IncomingResult Connection::receive(IncomingMessage& into) {
  into = {};
  into.fds.reserve(kMostFds);
  into.bytes.resize(most_request_bytes);
  iovec payload{into.bytes.data(), into.bytes.size()};
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  msghdr header{};
  header.msg_iov = &payload;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const auto length = receive_once(socket_.get(), header);
  if (length < 0) {
    if (errno == EAGAIN) return IncomingResult::nothing;
    if (errno == ECONNRESET) return IncomingResult::closed;
    throw_errno("recvmsg", "a control connection");
  }
  take_control(header, into);
  into.bytes.resize(static_cast<std::size_t>(length));
  into.is_cut = (header.msg_flags & MSG_TRUNC) != 0;
  into.has_lost_fds = (header.msg_flags & MSG_CTRUNC) != 0;
  // End of file has no sender, unlike an empty message, which the protocol does not use.
  return length == 0 && !into.credentials ? IncomingResult::closed : IncomingResult::message;
}

int Connection::send(const std::string& bytes, std::initializer_list<int> fds) noexcept {
  std::array<int, 2> sent_fds{};
  auto* const end = std::ranges::copy_if(fds, sent_fds.begin(), [](int fd) { return fd >= 0; }).out;
  const std::size_t fd_bytes = sizeof(int) * static_cast<std::size_t>(end - sent_fds.begin());
  iovec payload{const_cast<char*>(bytes.data()), bytes.size()};  // NOLINT: sendmsg only reads
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(sent_fds))> control{};
  msghdr header{};
  header.msg_iov = &payload;
  header.msg_iovlen = 1;
  if (fd_bytes > 0) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(fd_bytes);
    auto* const part = reinterpret_cast<cmsghdr*>(control.data());
    *part = {.cmsg_len = CMSG_LEN(fd_bytes), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    std::memcpy(CMSG_DATA(part), sent_fds.data(), fd_bytes);
  }
  const auto sent = sys::retry("sendmsg", ::sendmsg, socket_.get(), &header, int{MSG_NOSIGNAL | MSG_DONTWAIT});
  return sent < 0 ? errno : 0;
}

bool Connection::is_hung_up() const noexcept { return drover::session::is_hung_up(socket_.get()); }

void name_senders(const Fd& socket) {
  const int on = 1;
  if (sys::call("setsockopt", ::setsockopt, socket.get(), SOL_SOCKET, SO_PASSCRED, static_cast<const void*>(&on),
                socklen_t{sizeof(on)}) != 0) {
    throw_errno("setsockopt(SO_PASSCRED)", "a control socket");
  }
}

Credentials peer_credentials(const Fd& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (sys::call("getsockopt", ::getsockopt, socket.get(), SOL_SOCKET, SO_PEERCRED, static_cast<void*>(&peer),
                &length) != 0) {
    throw_errno("getsockopt(SO_PEERCRED)", "a control connection");
  }
  return {.pid = peer.pid, .uid = peer.uid};
}

bool is_hung_up(int socket) noexcept {
  pollfd state{.fd = socket, .events = 0, .revents = 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

}  // namespace drover::session
