#include "ipc/queue_core.hpp"

#include <bit>
#include <exception>
#include <utility>

#include "drover/base/log.hpp"

namespace drover {

QueueCore::QueueCore(SharedObject object)
    : object_(std::move(object)), view_(object_.layout(), queue_geometry(object_.spec())) {}

// What is left of a dropped message when the session is over, or in a forked child, is nobody's concern any more.
void QueueCore::free(detail::HeldMemory& held) noexcept {
  try {
    if (held.is_overflow_) {
      object_.membership().close(held.overflow_);
    } else {
      view_.pool.free(std::bit_cast<BlockRef>(held.block_), object_.self(), object_.membership());
    }
    ring_all(head().bytes_free);
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

void QueueCore::close() {
  static_cast<void>(object_.self());
  head().is_closed.exchange(1);
  ring_always(head().record_ready);
  ring_always(head().slot_free);
  ring_always(head().bytes_free);
}

bool QueueCore::is_readable() noexcept {
  return has_returned() || view_.ring.has_record(cursors_) || is_closed() || is_alone(has_put_);
}

// Rule 6: the epoch is read before the search, and remembered only if that finds nothing.
bool QueueCore::has_returned() noexcept {
  const std::uint64_t epoch = head().returned_epoch.load();
  if (epoch == cursors_.seen_epoch.load(std::memory_order_relaxed)) return false;  // relaxed: for this process alone
  for (std::uint64_t index = 0; index < view_.flight_count; ++index) {
    if (state_of(view_.flights[index].word.load()) == SlotState::returned) return true;
  }
  if (view_.ring.has_returned()) return true;
  cursors_.seen_epoch.store(epoch, std::memory_order_relaxed);
  return false;
}

// The watch belongs to this core, so it may refer to it; it keeps the membership, whose mapping holds the bell.
int QueueCore::fd() {
  const MutexLock lock(watch_mutex_);
  if (watch_ == nullptr) {
    watch_ = std::make_unique<Bridge::Watch>(BridgeTarget{.bell = &head().record_ready,
                                                          .is_ready = [this] { return is_readable(); },
                                                          .membership = object_.shared_membership()});
    is_watched_ = true;
  }
  return watch_->fd();
}

void QueueCore::watch_again() {
  const MutexLock lock(watch_mutex_);
  watch_->rearm();
}

// Whether nobody can come who does the other half. Nobody else has the queue open and nobody is on the way; this
// process has not done the other half itself, which another of its threads might do again; and somebody who had it
// open died, or everybody else is gone from the session. Where others left in good order, those who stay may still
// open it.
bool QueueCore::is_alone(const std::atomic<bool>& has_acted) const noexcept {
  if (alone_rule_) return alone_rule_();
  const ObjectHeader& header = header_of(object_.data());
  if (header.openers.load() > 1 || has_acted.load(std::memory_order_relaxed)) return false;  // relaxed: a hint
  const Population population = object_.membership().population();
  if (population.starting > 0) return false;
  return header.last_lost.load() != 0 || (population.present <= 1 && population.departed != header.departed_before);
}

}  // namespace drover
