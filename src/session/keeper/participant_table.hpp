// session/keeper/participant_table.hpp: who takes part, as the keeper knows it, and shown to all on the session's
// page.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "drover/base/fd.hpp"
#include "drover/base/mapping.hpp"
#include "drover/ipc/membership.hpp"
#include "drover/session/session.hpp"
#include "session/wire/session_page.hpp"

namespace drover {

/// What the keeper knows of one participant.
struct Participant {
  ParticipantInfo info;                          ///< as shown on the page
  Fd pidfd;                                      ///< readable when the process is dead
  std::uint64_t connection = 0;                  ///< which one is its; 0 when it closed it
  bool is_application = false;                   ///< the session without a name ends with it
  std::map<std::uint32_t, std::uint32_t> slabs;  ///< open objects by the memory file they lie in
};

/// Gives out numbers and incarnations, and writes the session's page. Lives in the keeper. Not synchronised.
class ParticipantTable {
 public:
  /// Makes the page of a new session.
  ParticipantTable();

  /// The page, to be handed to whoever joins or visits.
  [[nodiscard]] const Fd& page_file() const noexcept { return file_; }
  /// Takes a participant in under a new number and incarnation. One that was announced stops to count as starting in
  /// the same step. Throws `Errc::limit_reached` if those here and on their way are kMaxParticipants.
  Participant& add(Participant participant, bool was_announced);
  /// Takes it out, after recovery; its number may be given out again from now on.
  void remove(Owner number);
  /// The participant with this number; nullptr if there is none.
  [[nodiscard]] Participant* find(Owner number) noexcept;
  /// The participant with this incarnation; nullptr if there is none.
  [[nodiscard]] Participant* find_incarnation(std::uint64_t incarnation) noexcept;
  /// Shows the participant, which has closed its connection, as silent.
  void set_silent(Participant& participant);

  /// One more, or one fewer, is on its way. Announcing throws as `add`.
  void announce();
  void retract();
  /// From now on everybody who looks sees that the session ends.
  void set_ending() noexcept;

  /// The counts.
  [[nodiscard]] const Population& population() const noexcept { return population_; }
  /// All, by number.
  [[nodiscard]] std::map<Owner, Participant>& all() noexcept { return participants_; }

 private:
  [[nodiscard]] SessionPage& page() const noexcept { return *reinterpret_cast<SessionPage*>(memory_.data()); }
  [[nodiscard]] Owner free_number() const;
  void require_room() const;
  void show(const ParticipantInfo& info) noexcept;
  void show_population() noexcept { page().population.store(pack(population_)); }

  Fd file_;
  Mapping memory_;
  std::map<Owner, Participant> participants_;
  Population population_;
  Owner last_number_ = kNobody;
  std::uint64_t last_incarnation_ = 0;
};

}  // namespace drover
