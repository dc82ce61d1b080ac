// ipc/queue/slot_pages.hpp: makes the pages of a ring present ahead of their first use.
#pragma once

#include <atomic>
#include <limits>

#include "ipc/queue/ring.hpp"

namespace drover::ipc {

/// The pages of a ring's slots, as one opening of a queue uses them. A page fault takes as long as ten small
/// messages, and each 32nd message of the opening's first lap would have one; so pages are made present several at a
/// time, but none before it is needed: most queues use a few slots only. Safe for all threads; those that race make
/// fewer pages present.
class SlotPages {
 public:
  explicit SlotPages(const Ring& ring) noexcept;

  /// Notes that the slot at a position was claimed. One load, except for one in 512 positions of the first lap.
  void note_use(Position position) noexcept {
    // relaxed: a hint for this process
    if (position >= present_until_.load(std::memory_order_relaxed)) make_present_from(position);
  }

 private:
  static constexpr Position kAll = std::numeric_limits<Position>::max();
  void make_present_from(Position position) noexcept;

  const Ring& ring_;
  std::atomic<Position> present_until_{0};  // slots at earlier positions cause no page faults
  std::atomic<Position> absent_;            // slots of the first lap that are left
};

}  // namespace drover::ipc
