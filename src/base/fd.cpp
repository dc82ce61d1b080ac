#include "drover/base/fd.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"

namespace drover {

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    number_ = std::exchange(other.number_, kEmpty);
  }
  return *this;
}

void Fd::reset() noexcept {
  if (!is_open()) return;
  const int number = release();
  // Not repeated on EINTR: Linux has freed the number already, and another thread may own it by now.
  if (sys::call("close", ::close, number) == 0 || errno == EINTR) return;
  log(LogLevel::warn, "close failed for a file descriptor; it was closed twice or never open", number);
}

Fd Fd::duplicate() const {
  const auto duplicate_above_stdio = [](int fd) { return ::fcntl(fd, F_DUPFD_CLOEXEC, 3); };
  const int copy = sys::call("fcntl", duplicate_above_stdio, number_);
  if (copy < 0) throw_errno("fcntl(F_DUPFD_CLOEXEC)", fmt::format("file descriptor {}", number_));
  return Fd(copy);
}

}  // namespace drover
