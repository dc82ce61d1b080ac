// process/spawn/line_writer.hpp: non-blocking writes to descriptors that other processes share.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "drover/base/log.hpp"

namespace drover::process {

/// Like write(2), but fails with EAGAIN where it would block, if the kind of file allows that. Leaves the flags of
/// the open file alone, since other processes share them. The calling thread must block or ignore SIGPIPE.
[[nodiscard]] ssize_t write_nonblocking(int fd, std::string_view bytes) noexcept;

/// A log sink like `log_to_stderr` that never blocks: a line that standard error does not accept at once is dropped.
void log_nonblocking(LogLevel level, std::string_view text) noexcept;

/// Queues lines for a descriptor that others own and share, and writes them without blocking. Each write holds whole
/// lines and at most PIPE_BUF bytes. If the reader has gone or the descriptor is closed, lines are dropped; if the
/// reader is slow, they accumulate up to `kCapacity`, and producers should pause. Not synchronised. The calling
/// thread must block SIGPIPE.
class LineWriter {
 public:
  static constexpr std::size_t kCapacity = 256 * std::size_t{1024};  ///< bytes

  /// Writes to whatever is open as `fd` at the time of each write; -1 discards all lines.
  explicit LineWriter(int fd) noexcept : fd_(fd) {}

  /// Queues a line, even beyond the capacity.
  void put(std::string_view line);
  /// Whether fewer bytes than the capacity are queued.
  [[nodiscard]] bool has_room() const noexcept { return bytes_ < kCapacity; }
  /// Whether nothing is queued.
  [[nodiscard]] bool is_empty() const noexcept { return batches_.empty(); }
  /// Bytes queued since the start.
  [[nodiscard]] std::uint64_t total_put() const noexcept { return put_; }
  /// Bytes written or dropped since the start.
  [[nodiscard]] std::uint64_t total_gone() const noexcept { return put_ - bytes_; }
  /// The descriptor, for poll.
  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// Writes until the queue is empty or a write would block.
  void write_some();
  /// Drops what is queued.
  void drop() noexcept;

 private:
  int fd_;
  std::deque<std::string> batches_;
  std::size_t bytes_ = 0;
  std::uint64_t put_ = 0;
};

}  // namespace drover::process
