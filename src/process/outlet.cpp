#include "process/outlet.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>

#include <array>

#include "drover/base/fd.hpp"

namespace drover {
namespace {

// Opened anew, because the flag against waiting belongs to the open file, which others share with us.
Fd reopened(int fd) noexcept {
  std::array<char, 32> path{};
  static_cast<void>(std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd));
  return Fd(::open(path.data(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

// As write, without waiting where the kind of file allows that. Plain files are written as they are: opened anew they
// would have another position.
ssize_t write_now(int fd, std::string_view bytes) noexcept {
  struct stat facts{};
  if (::fstat(fd, &facts) != 0) return -1;
  if (S_ISSOCK(facts.st_mode)) return ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (!S_ISFIFO(facts.st_mode) && !S_ISCHR(facts.st_mode)) return ::write(fd, bytes.data(), bytes.size());
  const Fd copy = reopened(fd);
  if (!copy.is_open() && errno == ENXIO) return -1;  // a pipe without a reader
  return ::write(copy.is_open() ? copy.get() : fd, bytes.data(), bytes.size());
}

}  // namespace

void Outlet::put(std::string_view line) {
  bytes_ += line.size();
  put_ += line.size();
  if (batches_.empty() || batches_.back().size() + line.size() > PIPE_BUF) batches_.emplace_back();
  batches_.back().append(line);
}

void Outlet::write_some() {
  while (!batches_.empty()) {
    std::string& batch = batches_.front();
    const auto written = write_now(fd_, batch);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    if (written < 0) return drop();
    bytes_ -= static_cast<std::size_t>(written);
    batch.erase(0, static_cast<std::size_t>(written));
    if (!batch.empty()) return;
    batches_.pop_front();
  }
}

void Outlet::drop() noexcept {
  batches_.clear();
  bytes_ = 0;
}

}  // namespace drover
