#include "ipc/queue/slot_pages.hpp"

#include <algorithm>
#include <span>

#include "drover/base/bytes.hpp"
#include "drover/base/mapping.hpp"

namespace drover::ipc {
namespace {

constexpr Position kMost = 1 * kMiB / sizeof(RingSlot);
constexpr Position kAtATime = 64 * kKiB / sizeof(RingSlot);

}  // namespace

SlotPages::SlotPages(const Ring& ring) noexcept : ring_(ring), absent_(std::min(ring.capacity(), kMost)) {}

void SlotPages::make_present_from(Position position) noexcept {
  const Position count = std::min(kAtATime, ring_.capacity() - ring_.index_of(position));
  make_present(std::as_writable_bytes(std::span(&ring_.slot(position), count)));
  // relaxed, all: hints for this process
  const Position absent = absent_.load(std::memory_order_relaxed);
  absent_.store(absent - std::min(absent, count), std::memory_order_relaxed);
  present_until_.store(absent <= count ? kAll : position + count, std::memory_order_relaxed);
}

}  // namespace drover::ipc
