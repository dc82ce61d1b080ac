// session/keeper/participant_table.hpp: the participants of a session, also published on its
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

namespace drover::session {

/// The keeper's record of one participant.
struct Participant {
  ParticipantInfo info;                          ///< as shown on the page
  Fd pidfd;                                      ///< readable once the process has ended
  std::uint64_t connection = 0;                  ///< id of its connection; 0 after it closed it
  bool is_application = false;                   ///< an unnamed session ends with it
  std::map<std::uint32_t, std::uint32_t> slabs;  ///< numbers of open objects, by memory file
};

/// Assigns numbers and incarnations, and writes the session's page. Lives in the keeper. Not synchronised.
class ParticipantTable {
 public:
  /// Creates the page of a new session.
  ParticipantTable();

  /// The page, for participants and visitors.
  [[nodiscard]] const Fd& page_file() const noexcept { return file_; }
  /// Adds a participant under a new number and incarnation. An announced one stops counting as starting in the same
  /// step. Throws `Errc::limit_reached` if kMaxParticipants are present or starting.
  Participant& add(Participant participant, bool was_announced);
  /// Removes a participant after its recovery; its number may then be reused.
  void remove(Owner number);
  /// The participant with this number; nullptr if there is none.
  [[nodiscard]] Participant* find(Owner number) noexcept;
  /// The participant with this incarnation; nullptr if there is none.
  [[nodiscard]] Participant* find_incarnation(std::uint64_t incarnation) noexcept;
  /// Marks a participant that has closed its connection as silent.
  void set_silent(Participant& participant);

  /// Count one more or one fewer participant as starting. `announce` throws like `add`.
  void announce();
  void retract();
  /// Where the page shows whether the session is over.
  [[nodiscard]] drover::detail::SessionLife& life() noexcept { return page().life; }
  /// Publishes that the session is ending.
  void set_ending() noexcept;

  /// The numbers of participants.
  [[nodiscard]] const Population& population() const noexcept { return population_; }
  /// All participants, by number.
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

}  // namespace drover::session
