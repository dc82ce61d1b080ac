// session/keeper/poller.hpp: waits for several descriptors at once.
#pragma once

#include <cstdint>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"

namespace drover::session {

/// The meaning of a descriptor in a Poller: a kind, and a number that is never reused within it.
struct PollKey {
  /// The kinds of descriptors of the keeper.
  enum class Kind : std::uint8_t { starter, signals, listener, connection, process };
  Kind kind = Kind::starter;  ///< kind of descriptor
  std::uint64_t number = 0;   ///< for connections and processes

  friend bool operator==(const PollKey&, const PollKey&) = default;
};

/// An epoll for descriptors that become readable or hang up. Not synchronised.
class Poller {
 public:
  /// Throws `Errc::limit_reached` if too many files are open.
  Poller();

  /// Adds `fd`; the kernel removes it when the last descriptor of its open file description is closed.
  void add(int fd, PollKey key);
  /// Removes it.
  void remove(int fd) noexcept;
  /// Waits until a descriptor is ready or the deadline passes, and returns the keys of those that are ready. Handling
  /// one may remove another that is also in the list.
  [[nodiscard]] std::vector<PollKey> wait(Deadline deadline);

 private:
  Fd epoll_;
};

}  // namespace drover::session
