#include "session/wire/session_page.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/sys.hpp"
#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "session/wire/protocol.hpp"

namespace drover::session {
namespace {

constexpr unsigned kCountBits = 12;
constexpr std::uint64_t kCountMask = (1U << kCountBits) - 1;
constexpr int kMostTries = 1000;

std::string name_of(const ParticipantSlot& slot) {
  std::array<char, kMostNameBytes + 1> text{};
  static_assert(sizeof(text) == sizeof(slot.name));
  for (std::size_t i = 0; i < slot.name.size(); ++i) {
    const std::uint64_t word = slot.name.at(i).load();
    std::memcpy(text.data() + i * sizeof(word), &word, sizeof(word));
  }
  text.back() = '\0';
  return text.data();
}

bool is_state(std::uint32_t state) {
  return state == static_cast<std::uint32_t>(ParticipantState::present) ||
         state == static_cast<std::uint32_t>(ParticipantState::silent);
}

// nullopt if the slot is free. The keeper writes a slot rarely and briefly; if it is killed meanwhile, the version
// stays odd forever.
std::optional<ParticipantInfo> read_slot(const ParticipantSlot& slot, Owner number) {
  for (int tries = 0; tries < kMostTries; ++tries) {
    const std::uint32_t before = slot.version.load();
    const std::uint32_t state = slot.state.load();
    ParticipantInfo info{.number = number,
                         .incarnation = slot.incarnation.load(),
                         .pid = static_cast<pid_t>(slot.pid.load()),
                         .start_time = slot.start_time.load(),
                         .name = name_of(slot),
                         .state = ParticipantState::present,
                         .is_worker = slot.is_worker.load() != 0};
    if (before % 2 != 0 || slot.version.load() != before) continue;
    if (!is_state(state)) return std::nullopt;
    info.state = static_cast<ParticipantState>(state);
    return info;
  }
  return std::nullopt;
}

}  // namespace

std::uint64_t pack(const Population& population) noexcept {
  return (population.present & kCountMask) | ((population.starting & kCountMask) << kCountBits) |
         (population.departed << (2 * kCountBits));
}

Population unpack(std::uint64_t word) noexcept {
  return {.present = static_cast<std::uint32_t>(word & kCountMask),
          .starting = static_cast<std::uint32_t>((word >> kCountBits) & kCountMask),
          .departed = word >> (2 * kCountBits)};
}

PageView::PageView(const Fd& file) {
  static_cast<void>(check_memory_file(file));
  memory_ = Mapping::shared(file, sizeof(SessionPage));
  const bool is_right =
      page().magic == kPageMagic && page().version == kPageVersion && page().slot_bytes == sizeof(ParticipantSlot);
  if (!is_right) {
    throw Error(Errc::corrupt, "the file from the keeper is not the page of a session of this version",
                "let all processes of a session use the same drover");
  }
  if (sys::call("mprotect", ::mprotect, static_cast<void*>(memory_.data()), memory_.size(), PROT_READ) != 0) {
    throw_errno("mprotect", "the page of a session");
  }
}

std::vector<ParticipantInfo> PageView::participants() const {
  std::vector<ParticipantInfo> found;
  for (Owner number = 1; number <= kMaxParticipants; ++number) {
    const ParticipantSlot& slot = page().slots.at(number);
    if (slot.version.load() == 0) continue;  // never used
    if (auto info = read_slot(slot, number)) found.push_back(std::move(*info));
  }
  return found;
}

Population PageView::population() const noexcept { return unpack(page().population.load()); }

bool PageView::is_ending() const noexcept { return page().life.is_ending.load() != 0; }

bool PageView::has_participant(Owner number) const noexcept {
  return number <= kMaxParticipants && is_state(page().slots.at(number).state.load());
}

std::chrono::nanoseconds PageView::age() const noexcept {
  return Clock::now().time_since_epoch() - std::chrono::nanoseconds(page().started_ns);
}

}  // namespace drover::session

namespace drover {

std::string_view to_string(ParticipantState state) noexcept {
  return state == ParticipantState::present ? "present" : "silent";
}

}  // namespace drover
