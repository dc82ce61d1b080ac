// drover/ipc/wait.hpp: one wait for many things.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "drover/base/clock.hpp"

namespace drover {

class Event;
class Membership;
class Pipe;
class Queue;
struct Bell;

/// Something that `wait` can wait for. A small value, to be used while what it refers to exists.
class WaitSource {
 public:
  /// Until a get would end at once: a message, the end of a closed queue, or no peer left.
  WaitSource(const Queue& queue);  // NOLINT(google-explicit-constructor): wait({queue, pipe})
  /// Until a receive would end at once.
  WaitSource(const Pipe& pipe);  // NOLINT(google-explicit-constructor): as above
  /// Until it is set.
  WaitSource(const Event& event);  // NOLINT(google-explicit-constructor): as above
  /// Until a descriptor is readable or its other end is gone: sockets, eventfds, the pidfd of a process, which is
  /// readable when it has ended. The descriptor stays the caller's and must stay open.
  [[nodiscard]] static WaitSource readable(int fd);

 private:
  friend class Waiting;
  WaitSource() = default;

  int fd_ = -1;
  Bell* bell_ = nullptr;
  std::function<bool()> is_ready_;
  std::shared_ptr<Membership> membership_;  // shared: the bell lies in memory that it maps
};

/// Waits until at least one source is ready, or the deadline. Returns the places of all that are ready, in order;
/// none if the deadline passed. Takes nothing: another consumer may be faster. Throws what `Membership::check`
/// throws when a session is over. Requires: at least one source.
[[nodiscard]] std::vector<std::size_t> wait(std::span<const WaitSource> sources, Deadline deadline);
/// The same for sources written in place: wait({queue, WaitSource::readable(fd)}, deadline).
[[nodiscard]] std::vector<std::size_t> wait(std::initializer_list<WaitSource> sources, Deadline deadline);

}  // namespace drover
