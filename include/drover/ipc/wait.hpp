// drover/ipc/wait.hpp: one wait for several sources.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "drover/base/clock.hpp"

namespace drover::ipc {
struct Bell;
}  // namespace drover::ipc

namespace drover {

class Event;
class Membership;
class Pipe;
class Queue;

/// A source for `wait`. A small value; the object it refers to must outlive it.
class WaitSource {
 public:
  /// Ready when a get would end at once: with a message, at the end of a closed queue, or because no peer is left.
  WaitSource(const Queue& queue);  // NOLINT(google-explicit-constructor): wait({queue, pipe})
  /// Ready when a receive would end at once.
  WaitSource(const Pipe& pipe);  // NOLINT(google-explicit-constructor): as above
  /// Ready when it is set.
  WaitSource(const Event& event);  // NOLINT(google-explicit-constructor): as above
  /// Ready when a descriptor is readable or its other end is gone: a socket, an eventfd, or the pidfd of a process,
  /// which is readable when the process has ended. The descriptor stays the caller's and must stay open.
  [[nodiscard]] static WaitSource readable(int fd);

 private:
  friend class Waiting;
  WaitSource() = default;

  int fd_ = -1;
  ipc::Bell* bell_ = nullptr;
  std::function<bool()> is_ready_;
  std::shared_ptr<Membership> membership_;  // shared: the bell lies in memory that it maps
};

/// Waits until at least one source is ready, or the deadline has passed. Returns the indices of all ready sources, in
/// order; none at the deadline. Takes nothing, so another consumer may be faster. Throws what `Membership::check`
/// throws when a session is over. Requires: at least one source.
[[nodiscard]] std::vector<std::size_t> wait(std::span<const WaitSource> sources, Deadline deadline);
/// The same for a list: wait({queue, WaitSource::readable(fd)}, deadline).
[[nodiscard]] std::vector<std::size_t> wait(std::initializer_list<WaitSource> sources, Deadline deadline);

}  // namespace drover
