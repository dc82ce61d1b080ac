#include "ipc/queue/queue_core.hpp"

#include <algorithm>
#include <bit>
#include <exception>
#include <span>
#include <utility>

#include "drover/base/bytes.hpp"
#include "drover/base/log.hpp"
#include "drover/base/mapping.hpp"
#include "ipc/queue/cache_lines.hpp"

namespace drover {
namespace {

constexpr std::size_t kMostTakenOver = 4 * kMiB;  // what is larger has left the core's caches anyway
constexpr std::size_t kMostMadePresent = 1 * kMiB;

bool has_other_doers(const Doers& half, const Doers& other_half) noexcept {
  return Bridge::is_this_thread() ? other_half.has_other_than_doers_of(half) : other_half.has_other();
}

}  // namespace

QueueCore::QueueCore(SharedObject object)
    : object_(std::move(object)), view_(object_.layout(), queue_geometry(object_.spec())), use_(use_of(object_)) {
  const auto slots = std::as_writable_bytes(std::span(&view_.ring.slot(0), view_.ring.capacity()));
  make_present(slots.first(std::min(slots.size(), kMostMadePresent)));  // else each 32nd put of the first lap is slow
}

// What is left of a dropped message when the session is over, or in a forked child, is nobody's concern any more.
void QueueCore::free(detail::HeldMemory& held) noexcept {
  try {
    if (held.is_overflow_) {
      object_.membership().close(held.overflow_);
    } else {
      const Owner me = object_.self();  // throws in a forked child, which must not write
      const auto block = std::bit_cast<BlockRef>(held.block_);
      const bool is_spent = held.is_copied_ && held.size_ <= kMostTakenOver;
      if (is_spent && view_.pool.owner_of(block) == me) take_over_spent(held.data_, held.size_);
      view_.pool.free(block, me, object_.membership());
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

std::uint64_t QueueCore::size() const noexcept {
  const auto returned = std::count_if(view_.flights, view_.flights + view_.flight_count, [](const Flight& flight) {
    return state_of(flight.word.load()) == SlotState::returned;
  });
  return view_.ring.count() + static_cast<std::uint64_t>(returned);
}

bool QueueCore::is_readable() noexcept {
  return has_returned() || view_.ring.has_record(cursors_) || is_closed() || is_alone(use_->getters, use_->putters);
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
  static_cast<void>(object_.self());
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

// Whether nobody can come who does the other half: there have been others, nobody else has the queue open, nobody is
// on the way, everybody present had it open and has closed it, and no other thread of this process does that half.
// Who is present is read first: who joins later and opens the queue is then seen by the openers.
bool QueueCore::is_alone(const Doers& half, const Doers& other_half) const noexcept {
  if (alone_rule_) return alone_rule_();
  const ObjectHeader& header = header_of(object_.data());
  if (header.openers.load() > 1 || waits_alone(object_.spec()) || has_other_doers(half, other_half)) return false;
  const Population population = object_.membership().population();
  if (population.starting > 0 || header.acquainted.load() < population.present || header.openers.load() > 1)
    return false;
  return header.ever_opened.load() > 1 || population.departed != header.departed_before;
}

}  // namespace drover
