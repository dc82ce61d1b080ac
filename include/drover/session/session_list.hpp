// drover/session/session_list.hpp: the named sessions of this user, listed without joining them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "drover/ipc/lease.hpp"
#include "drover/ipc/membership.hpp"
#include "drover/session/session.hpp"

namespace drover {

/// A slab deposited with a keeper.
struct SlabInfo {
  SlabId id{};              ///< its number in the session
  std::string label;        ///< for listings
  std::uint64_t bytes = 0;  ///< as declared by its depositor
};

/// A snapshot of a session.
struct SessionInfo {
  std::string name;                           ///< its name
  pid_t keeper_pid = 0;                       ///< process id of its keeper
  std::chrono::nanoseconds age{};             ///< time since its start
  std::chrono::seconds idle_limit{};          ///< it ends after this time without participants; 0: never
  Population population;                      ///< numbers of participants
  std::uint64_t objects = 0;                  ///< shared objects
  std::uint64_t object_bytes = 0;             ///< of their memory files
  std::uint64_t slab_count = 0;               ///< slabs that the keeper holds: deposited ones and files of objects
  std::uint64_t slab_bytes = 0;               ///< total size of these
  std::vector<ParticipantInfo> participants;  ///< by number
  std::vector<SlabInfo> slabs;                ///< deposited slabs by number
  std::vector<KeptInfo> kept;                 ///< kept entries by name
  std::string problem;                        ///< why the rest is unknown; empty if there is no problem
};

/// Lists the named sessions of this user, by name, without joining them. Removes leftovers of killed keepers. A
/// keeper that does not answer within two seconds is listed with a `problem`.
[[nodiscard]] std::vector<SessionInfo> list_sessions();

/// Describes one session. Throws `Errc::not_found` if there is none of this name, `Errc::timed_out` if its keeper
/// does not answer.
[[nodiscard]] SessionInfo describe_session(const std::string& name);

/// Drops a kept entry of a session, like `Session::drop`. Throws `Errc::not_found` if there is no such session or
/// entry, `Errc::timed_out` if its keeper does not answer.
void drop_kept(const std::string& session_name, const std::string& kept_name);

/// Ends a session and returns once its keeper has ended. Throws `Errc::not_found`, and `Errc::busy` if it has
/// participants. With `is_forced`, kills its workers instead, makes calls of other participants fail, and kills a
/// keeper that does not answer.
void end_session(const std::string& name, bool is_forced);

}  // namespace drover
