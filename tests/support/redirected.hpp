// tests/support/redirected.hpp: captures standard output or standard error of this process.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string>

#include "drover/base/fd.hpp"

namespace drover::test {

/// Redirects standard output or standard error of this process to a pipe that the test reads. Output of other threads
/// and of child processes goes there too.
class Redirected {
 public:
  /// `stream` is STDOUT_FILENO or STDERR_FILENO.
  explicit Redirected(int stream) : stream_(stream), before_(::fcntl(stream, F_DUPFD_CLOEXEC, 10)) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    reader_ = Fd(ends[0]);
    const Fd writer(ends[1]);
    ::dup2(writer.get(), stream);
  }
  ~Redirected() { restore(); }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

  /// Restores the stream.
  void restore() {
    if (before_.is_open()) ::dup2(before_.get(), stream_);
    before_.reset();
  }
  /// Closes the read end, so that further writes fail.
  void close_reader() { reader_.reset(); }
  /// Waits for a line and returns it without the newline.
  [[nodiscard]] std::string read_line() const {
    std::string line;
    for (char byte = 0; ::read(reader_.get(), &byte, 1) == 1 && byte != '\n';) line.push_back(byte);
    return line;
  }
  /// Reads until every write end is closed.
  [[nodiscard]] std::string read_to_end() const {
    std::string text;
    std::array<char, 1 << 16> piece{};
    for (ssize_t length = 0; (length = ::read(reader_.get(), piece.data(), piece.size())) > 0;) {
      text.append(piece.data(), static_cast<std::size_t>(length));
    }
    return text;
  }
  /// Restores the stream, then reads to the end.
  [[nodiscard]] std::string read_rest() {
    restore();
    return read_to_end();
  }

 private:
  int stream_;
  Fd before_;
  Fd reader_;
};

}  // namespace drover::test
