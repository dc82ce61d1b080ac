#include "process/spawn/line_writer.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>

#include "base/log_line.hpp"
#include "drover/base/fd.hpp"

namespace drover::process {
namespace {

// Opens the file again, because O_NONBLOCK belongs to the open file description, which other processes share.
Fd reopened(int fd) noexcept {
  std::array<char, 32> path{};
  static_cast<void>(std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd));
  return Fd(::open(path.data(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

// For a file that cannot be opened again: after sudo or su another user owns it, or too many files are open. Another
// writer may take the room between the two calls, and then the write blocks; the kernel offers nothing better.
ssize_t write_if_there_is_room(int fd, std::string_view bytes) noexcept {
  pollfd room{.fd = fd, .events = POLLOUT, .revents = 0};
  if (::poll(&room, 1, 0) <= 0) {
    errno = EAGAIN;
    return -1;
  }
  return ::write(fd, bytes.data(), bytes.size());
}

}  // namespace

// Plain files are written directly: opened again they would have another position.
ssize_t write_nonblocking(int fd, std::string_view bytes) noexcept {
  struct stat facts{};
  if (::fstat(fd, &facts) != 0) return -1;
  if (S_ISSOCK(facts.st_mode)) return ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (!S_ISFIFO(facts.st_mode) && !S_ISCHR(facts.st_mode)) return ::write(fd, bytes.data(), bytes.size());
  const Fd copy = reopened(fd);
  if (copy.is_open()) return ::write(copy.get(), bytes.data(), bytes.size());
  return errno == ENXIO ? -1 : write_if_there_is_room(fd, bytes);  // ENXIO: a pipe without a reader
}

void log_nonblocking(LogLevel level, std::string_view text) noexcept {
  const LogLine line(level, text);
  const int saved = errno;
  [[maybe_unused]] const auto ignored = write_nonblocking(STDERR_FILENO, line.text());
  errno = saved;
}

void LineWriter::put(std::string_view line) {
  bytes_ += line.size();
  put_ += line.size();
  if (batches_.empty() || batches_.back().size() + line.size() > PIPE_BUF) batches_.emplace_back();
  batches_.back().append(line);
}

void LineWriter::write_some() {
  while (!batches_.empty()) {
    std::string& batch = batches_.front();
    const auto written = write_nonblocking(fd_, batch);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    if (written < 0) return drop();
    bytes_ -= static_cast<std::size_t>(written);
    batch.erase(0, static_cast<std::size_t>(written));
    if (!batch.empty()) return;
    batches_.pop_front();
  }
}

void LineWriter::drop() noexcept {
  batches_.clear();
  bytes_ = 0;
}

}  // namespace drover::process
