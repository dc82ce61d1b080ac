#include "ipc/timeline/timeline_table.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "drover/base/error.hpp"
#include "drover/base/fd.hpp"

namespace drover::ipc {
namespace {

constexpr std::size_t kPage = 4096;

// Whether any thread of the process is left. If its number was reused, this waits for the other process instead.
bool is_alive(pid_t pid) noexcept {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.is_open()) return errno != ESRCH;
  pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, 0) == 0;
}

}  // namespace

TimelineTable::TimelineTable(std::shared_ptr<Membership> membership)
    : object_(std::move(membership), ObjectSpec{.kind = ObjectKind::timelines}) {
  require(reinterpret_cast<std::uintptr_t>(object_.data()) % kPage == 0,
          "the session's timelines do not start at a page", "please report this");
}

std::span<std::byte> TimelineTable::memory() const noexcept {
  const std::size_t bytes = sizeof(ObjectHeader) + sizeof(TimelineLayout);
  return {object_.data(), (bytes + kPage - 1) / kPage * kPage};
}

// Takes the free timeline with the fewest losses, since each loss overwrites what the timeline recorded of the
// previous one.
std::optional<std::uint32_t> TimelineTable::take() {
  const Owner self = object_.self();
  for (;;) {
    std::optional<std::uint32_t> best;
    for (std::uint32_t slot = 0; slot < kTimelines; ++slot) {
      const std::uint64_t epoch = epoch_of(word(slot).load());
      if (at(slot).owner.load() != kNobody || epoch >= kMostEpochs) continue;
      if (!best || epoch < epoch_of(word(*best).load())) best = slot;
      if (epoch == 0) break;
    }
    std::uint32_t nobody = kNobody;
    if (!best || at(*best).owner.compare_exchange_strong(nobody, self)) return best;
  }
}

void TimelineTable::give_back(std::uint32_t slot) noexcept {
  if (at(slot).owner.load() != object_.membership().self()) return;
  if (word(slot).load() >= submitted(slot)) end_ownership(at(slot));
}

bool TimelineTable::is_valid(const TimelinePoint& point) const noexcept {
  return point.slot < kTimelines && point.value > 0 && submitted(point.slot) >= point.value;
}

PointState TimelineTable::state_of(const TimelinePoint& point) const noexcept {
  const std::uint64_t seen = word(point.slot).load();
  if (epoch_of(seen) <= epoch_of(point.value)) return seen >= point.value ? PointState::reached : PointState::pending;
  const std::uint64_t good = at(point.slot).last_good.load();  // of the latest loss only
  const bool is_known = epoch_of(good) == epoch_of(point.value);
  return is_known && good >= point.value ? PointState::reached : PointState::lost;
}

void TimelineTable::lose(std::uint32_t slot) noexcept {
  if (at(slot).owner.load() == object_.membership().self()) lose_rest(at(slot));
}

// Several threads may do so at once; each stores the same.
void TimelineTable::recover_without_keeper(const TimelinePoint& point) noexcept {
  if (state_of(point) == PointState::pending && !is_alive(point.pid)) lose_rest(at(point.slot));
}

}  // namespace drover::ipc
