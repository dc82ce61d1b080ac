// drover/session/session_list.hpp: the named sessions of this user, seen from outside.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "drover/ipc/kept.hpp"
#include "drover/ipc/membership.hpp"
#include "drover/session/session.hpp"

namespace drover {

/// A slab that was deposited with a keeper.
struct SlabInfo {
  SlabId id{};              ///< its number in the session
  std::string label;        ///< for people
  std::uint64_t bytes = 0;  ///< as its depositor said
};

/// A session at the moment it was looked at.
struct SessionInfo {
  std::string name;                           ///< by which it is opened
  pid_t keeper_pid = 0;                       ///< the process that keeps it
  std::chrono::nanoseconds age{};             ///< since it began
  std::chrono::seconds idle_limit{};          ///< without participants it ends after so long; 0: never
  Population population;                      ///< who is in it, in numbers
  std::uint64_t objects = 0;                  ///< shared objects
  std::uint64_t object_bytes = 0;             ///< of their memory files
  std::uint64_t slab_count = 0;               ///< slabs in the keeper's hands: deposited ones, and files of objects
  std::uint64_t slab_bytes = 0;               ///< of all of these
  std::vector<ParticipantInfo> participants;  ///< by number
  std::vector<SlabInfo> slabs;                ///< that were deposited, by number
  std::vector<KeptInfo> kept;                 ///< under names, by name
  std::string problem;                        ///< why nothing more is known of it; empty if all is well
};

/// Every named session of this user, in the order of names. Takes part in none. What killed keepers left is removed;
/// a keeper that does not answer within two seconds is in the list with a `problem`.
[[nodiscard]] std::vector<SessionInfo> list_sessions();

/// One of them. Throws `Errc::not_found` if there is no such session, `Errc::timed_out` if its keeper does not
/// answer.
[[nodiscard]] SessionInfo describe_session(const std::string& name);

/// Ends what one of them keeps under a name, as `Session::drop` does. Throws `Errc::not_found` if there is no such
/// session, or nothing of that name; `Errc::timed_out` if its keeper does not answer.
void drop_kept(const std::string& session_name, const std::string& kept_name);

/// Ends one of them and returns when its keeper is gone. Throws `Errc::not_found`, and `Errc::busy` while somebody
/// takes part unless `is_forced`: then workers are killed and all others get errors. By force a keeper that does not
/// answer is killed.
void end_session(const std::string& name, bool is_forced);

}  // namespace drover
