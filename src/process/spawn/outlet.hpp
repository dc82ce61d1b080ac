// process/spawn/outlet.hpp: one of our standard streams, written to without ever waiting for its reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace drover {

/// Lines on their way to a descriptor that somebody else owns and shares. Every write holds whole lines and no more
/// than a pipe takes in one piece. A reader who is gone, or a descriptor that is closed, loses the lines and disturbs
/// nobody; one who does not read makes them pile up to `kEnough`, then the writers are to be held up. Not
/// synchronised. The calling thread must block SIGPIPE.
class Outlet {
 public:
  static constexpr std::size_t kEnough = 256 * std::size_t{1024};  ///< bytes from which on there is no room

  /// Leads to `fd`, whatever is open there at the time of a write; -1: nowhere.
  explicit Outlet(int fd) noexcept : fd_(fd) {}

  /// Adds a line, whether there is room or not.
  void put(std::string_view line);
  /// Whether more should be added.
  [[nodiscard]] bool has_room() const noexcept { return bytes_ < kEnough; }
  /// Whether everything was written.
  [[nodiscard]] bool is_empty() const noexcept { return batches_.empty(); }
  /// Bytes put so far.
  [[nodiscard]] std::uint64_t put_so_far() const noexcept { return put_; }
  /// Of these, bytes that were written or are lost.
  [[nodiscard]] std::uint64_t gone_so_far() const noexcept { return put_ - bytes_; }
  /// What to poll for writing.
  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// Writes as much as goes without waiting.
  void write_some();
  /// Forgets what was not written.
  void drop() noexcept;

 private:
  int fd_;
  std::deque<std::string> batches_;
  std::size_t bytes_ = 0;
  std::uint64_t put_ = 0;
};

}  // namespace drover
