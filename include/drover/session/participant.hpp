// drover/session/participant.hpp: who takes part in a session.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "drover/ipc/membership.hpp"

namespace drover {

/// How the keeper sees a participant.
enum class ParticipantState : std::uint32_t {
  present = 1,  ///< alive and connected
  silent = 2,   ///< alive, but it closed its connection without leaving; keeps what it holds until it dies
};

/// "present" or "silent".
[[nodiscard]] std::string_view to_string(ParticipantState state) noexcept;

/// One participant at the moment it was looked at.
struct ParticipantInfo {
  Owner number = kNobody;                              ///< what it stamps on what it takes; given out again later
  std::uint64_t incarnation = 0;                       ///< never given to another participant of the session
  pid_t pid = 0;                                       ///< its process
  std::uint64_t start_time = 0;                        ///< of the process, in clock ticks since the machine started
  std::string name;                                    ///< for people
  ParticipantState state = ParticipantState::present;  ///< how it is
  bool is_worker = false;                              ///< joined by invitation; killed when the session ends
};

}  // namespace drover
