// session/keeper/poller.hpp: waits for many descriptors at once.
#pragma once

#include <cstdint>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"

namespace drover {

/// What a descriptor in a Poller is for: a kind, and a number that is never used twice for it.
struct PollKey {
  /// The kinds, as the keeper has them.
  enum class Kind : std::uint8_t { starter, signals, listener, connection, process };
  Kind kind = Kind::starter;  ///< which
  std::uint64_t number = 0;   ///< of connections and processes

  /// Same kind and number.
  friend bool operator==(const PollKey&, const PollKey&) = default;
};

/// An epoll: descriptors that are readable, or have hung up. Not synchronised.
class Poller {
 public:
  /// Throws `Errc::limit_reached` when too many files are open.
  Poller();

  /// Watches `fd` from now on; the kernel forgets it when the last descriptor of the same open file is closed.
  void add(int fd, PollKey key);
  /// Watches it no longer.
  void remove(int fd) noexcept;
  /// Waits until something is ready or the deadline has passed, and returns what. A key may come that was removed by
  /// the handling of one before it.
  [[nodiscard]] std::vector<PollKey> wait(Deadline deadline);

 private:
  Fd epoll_;
};

}  // namespace drover
