// tests/support/peer_control.hpp: the messages between a PeerGroup and its peers. Private to the harness.
#pragma once

#include <string_view>

namespace drover::test {

/// Descriptors of the two channels of a process peer.
inline constexpr int kPeerChannel = 3;
inline constexpr int kPeerControl = 4;

inline constexpr std::string_view kHeldPrefix = "held ";      ///< from a peer: held at the point that follows
inline constexpr std::string_view kFailedPrefix = "failed ";  ///< from a peer: failed for the reason that follows
inline constexpr std::string_view kGoOn = "go on";            ///< from the group: continue

}  // namespace drover::test
