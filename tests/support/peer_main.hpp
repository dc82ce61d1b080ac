// tests/support/peer_main.hpp: runs this program as a process peer.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "support/peer.hpp"

namespace drover::test {

/// The arguments that start this program as a peer with `plan`, as a child of this process.
[[nodiscard]] std::vector<std::string> peer_arguments(const PeerPlan& plan);

/// Whether `arguments`, beginning with the program name, request the role of a peer.
[[nodiscard]] bool is_peer(std::span<char* const> arguments);

/// Runs the peer's body and returns the exit status: 0, or 1 if an assertion failed or an exception escaped.
int run_peer(std::span<char* const> arguments);

}  // namespace drover::test
