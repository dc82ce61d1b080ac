#include "queue/descriptors.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "drover/base/error.hpp"

namespace drover::bench {

Fd own_fd(int number, const char* call) {
  if (number < 0) throw_errno(call, "a lane for messages");
  return Fd(number);
}

void set_nonblocking(const Fd& fd) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) throw_errno("fcntl", "a lane for messages");
}

void write_all(const Fd& fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(fd.get(), bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw_errno("write", "a message");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

ReadResult read_all(const Fd& fd, std::span<std::byte> into) {
  std::size_t filled = 0;
  while (filled < into.size()) {
    const auto length = ::read(fd.get(), into.data() + filled, into.size() - filled);
    if (length == 0) return ReadResult::end;
    if (length > 0) {
      filled += static_cast<std::size_t>(length);
    } else if (errno == EAGAIN) {
      if (filled == 0) return ReadResult::nothing;
    } else if (errno != EINTR) {
      throw_errno("read", "a message");
    }
  }
  return ReadResult::filled;
}

}  // namespace drover::bench
