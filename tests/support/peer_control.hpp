// tests/support/peer_control.hpp: what a PeerGroup and its peers say to each other. Private to the harness.
#pragma once

#include <string_view>

namespace drover::test {

/// Descriptors under which a process peer finds its two channels.
inline constexpr int kPeerChannel = 3;
inline constexpr int kPeerControl = 4;

inline constexpr std::string_view kHeldPrefix = "held ";      ///< peer: stands at the point that follows
inline constexpr std::string_view kFailedPrefix = "failed ";  ///< peer: failed for the reason that follows
inline constexpr std::string_view kGoOn = "go on";            ///< group: leave the point

}  // namespace drover::test
