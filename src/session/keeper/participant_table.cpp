#include "session/keeper/participant_table.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "session/wire/protocol.hpp"

namespace drover::session {
namespace {

// Readers discard what they read between the two changes of the version.
class SlotWriting {
 public:
  explicit SlotWriting(ParticipantSlot& slot) noexcept : slot_(slot) { ++slot_.version; }
  ~SlotWriting() { ++slot_.version; }
  SlotWriting(const SlotWriting&) = delete;
  SlotWriting& operator=(const SlotWriting&) = delete;

 private:
  ParticipantSlot& slot_;
};

void write_name(ParticipantSlot& slot, const std::string& name) noexcept {
  std::array<char, kMostNameBytes + 1> text{};
  std::copy_n(name.begin(), std::min(name.size(), kMostNameBytes), text.begin());
  for (std::size_t i = 0; i < slot.name.size(); ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i * sizeof(word), sizeof(word));
    slot.name.at(i).store(word);
  }
}

}  // namespace

ParticipantTable::ParticipantTable()
    : file_(make_memory_file("drover session", sizeof(SessionPage))),
      memory_(Mapping::shared(file_, sizeof(SessionPage))) {
  page().version = kPageVersion;
  page().slot_bytes = sizeof(ParticipantSlot);
  page().started_ns = Clock::now().time_since_epoch().count();
  page().magic = kPageMagic;
}

Participant& ParticipantTable::add(Participant participant, bool was_announced) {
  if (!was_announced) require_room();
  participant.info.number = free_number();
  participant.info.incarnation = ++last_incarnation_;
  last_number_ = participant.info.number;
  show(participant.info);
  ++population_.present;
  if (was_announced) --population_.starting;
  show_population();
  return participants_.emplace(last_number_, std::move(participant)).first->second;
}

void ParticipantTable::remove(Owner number) {
  if (participants_.erase(number) == 0) return;
  ParticipantSlot& slot = page().slots.at(number);
  {
    const SlotWriting writing(slot);
    slot.state = 0;
  }
  --population_.present;
  ++population_.departed;
  show_population();
}

Participant* ParticipantTable::find(Owner number) noexcept {
  const auto at = participants_.find(number);
  return at == participants_.end() ? nullptr : &at->second;
}

Participant* ParticipantTable::find_incarnation(std::uint64_t incarnation) noexcept {
  const auto at = std::ranges::find_if(participants_,
                                       [&](const auto& each) { return each.second.info.incarnation == incarnation; });
  return at == participants_.end() ? nullptr : &at->second;
}

void ParticipantTable::set_silent(Participant& participant) {
  participant.connection = 0;
  participant.info.state = ParticipantState::silent;
  show(participant.info);
}

void ParticipantTable::announce() {
  require_room();
  ++population_.starting;
  show_population();
}

void ParticipantTable::retract() {
  --population_.starting;
  show_population();
}

void ParticipantTable::set_ending() noexcept { page().life.is_ending = 1; }

// Round robin: reuses a number as late as possible, so that the use of a stale one is more likely to be noticed.
Owner ParticipantTable::free_number() const {
  for (Owner step = 1; step <= kMaxParticipants; ++step) {
    const auto number = static_cast<Owner>((last_number_ + step - 1) % kMaxParticipants + 1);
    if (!participants_.contains(number)) return number;
  }
  throw Error(Errc::internal, "more participants than numbers");
}

void ParticipantTable::require_room() const {
  if (population_.present + population_.starting < kMaxParticipants) return;
  throw Error(Errc::limit_reached,
              fmt::format("the session already has {} participants, the maximum", kMaxParticipants),
              "let some leave first, or use several sessions");
}

void ParticipantTable::show(const ParticipantInfo& info) noexcept {
  ParticipantSlot& slot = page().slots.at(info.number);
  const SlotWriting writing(slot);
  slot.pid = static_cast<std::uint32_t>(info.pid);
  slot.is_worker = info.is_worker ? 1 : 0;
  slot.incarnation = info.incarnation;
  slot.start_time = info.start_time;
  write_name(slot, info.name);
  slot.state = static_cast<std::uint32_t>(info.state);
}

}  // namespace drover::session
