#include "ipc/sync/barrier_layout.hpp"

#include <new>

#include "drover/base/error.hpp"
#include "drover/ipc/barrier.hpp"

namespace drover::ipc {
namespace {

constexpr unsigned kArrivedShift = 1;
constexpr unsigned kRoundShift = kArrivedShift + 16;
constexpr unsigned kResetsShift = kRoundShift + 27;
constexpr unsigned kHistoryShift = kResetsShift + 8;
static_assert(kHistoryShift + BarrierWord::kHistory == 64);

BarrierLayout& barrier_at(std::byte* layout) { return *reinterpret_cast<BarrierLayout*>(layout); }

// The keeper wakes the waiters after it has recorded the lost process.
void recover_barrier(std::byte* layout, const ObjectSpec&, Owner dead) {
  BarrierLayout& barrier = barrier_at(layout);
  auto& members = barrier.members.at(dead / 64U);
  const std::uint64_t bit = std::uint64_t{1} << (dead % 64U);
  if ((members.load() & bit) == 0) return;
  barrier.word.fetch_or(BarrierWord{.is_broken = true}.pack());
  members.fetch_and(~bit);
}

}  // namespace

std::uint64_t BarrierWord::pack() const {
  return (is_broken ? 1U : 0U) | (std::uint64_t{arrived} << kArrivedShift) | (std::uint64_t{round} << kRoundShift) |
         (std::uint64_t{resets} << kResetsShift) | (std::uint64_t{history} << kHistoryShift);
}

BarrierWord BarrierWord::unpack(std::uint64_t word) {
  return {.is_broken = (word & 1U) != 0,
          .arrived = static_cast<std::uint16_t>(word >> kArrivedShift),
          .round = static_cast<std::uint32_t>(word >> kRoundShift) & kRoundMask,
          .resets = static_cast<std::uint8_t>(word >> kResetsShift),
          .history = static_cast<std::uint16_t>(word >> kHistoryShift)};
}

BarrierWord BarrierWord::next(bool is_passed) const {
  const unsigned outcomes = (static_cast<unsigned>(history) << 1U) | (is_passed ? 1U : 0U);
  return {.is_broken = false,
          .arrived = 0,
          .round = (round + 1) & kRoundMask,
          .resets = static_cast<std::uint8_t>(resets + (is_passed ? 0U : 1U)),
          .history = static_cast<std::uint16_t>(outcomes & kHistoryMask)};
}

bool BarrierWord::was_passed(const BarrierWord& arrival) const {
  const std::uint32_t ago = (round - arrival.round - 1) & kRoundMask;
  return ago < kHistory ? (history >> ago & 1U) != 0 : resets == arrival.resets;
}

const ObjectKindInfo barrier_kind = {
    .layout_bytes =
        [](const ObjectSpec& spec) {
          require(spec.parameters[0] >= 1 && spec.parameters[0] <= Barrier::kMostParties,
                  "a barrier must have 1 to 65535 parties", "pass the number of threads that wait at it");
          return sizeof(BarrierLayout);
        },
    .format = [](std::byte* layout, const ObjectSpec&) { new (layout) BarrierLayout{}; },
    .recover = recover_barrier,
    .wake_all = [](std::byte* layout, const ObjectSpec&) { wake_always(barrier_at(layout).bell); }};

}  // namespace drover::ipc
