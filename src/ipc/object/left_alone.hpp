// ipc/object/left_alone.hpp: whether anybody is left who could end a wait for an object.
#pragma once

#include <string_view>

#include "drover/ipc/membership.hpp"

namespace drover::ipc {

/// While one lives, this process may start participants by itself, as a pool replaces its workers.
class ExpectedPeers {
 public:
  ExpectedPeers() noexcept;
  ExpectedPeers(const ExpectedPeers&) = delete;
  ExpectedPeers& operator=(const ExpectedPeers&) = delete;
  ~ExpectedPeers();
};

/// Whether an ExpectedPeers lives.
[[nodiscard]] bool expects_peers() noexcept;

/// Whether only this process could end a wait for `object`: a participant has departed since the object was made, no
/// other one is present, is starting or is expected, and none can join unannounced. A present participant counts even
/// if it does not have the object open, since a message or a task that it takes may contain the object.
[[nodiscard]] bool are_others_gone(const SharedObject& object) noexcept;

/// Whether this process could end a wait of the calling thread: by a thread of the program, or by its handler of a
/// signal. Says yes where it cannot tell.
[[nodiscard]] bool can_be_ended_here();

/// Whether a wait of the calling thread for `object` would never end. Everything that the departed did is visible
/// when this is true, so check the object once more before giving up.
[[nodiscard]] inline bool is_left_alone(const SharedObject& object) {
  return are_others_gone(object) && !can_be_ended_here();
}

/// Throws `Errc::peer_lost` for a wait that would never end, with the pid of the last opener that died.
[[noreturn]] void fail_left_alone(const SharedObject& object);

}  // namespace drover::ipc
