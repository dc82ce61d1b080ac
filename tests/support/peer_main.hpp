// tests/support/peer_main.hpp: the life of a process peer.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "support/peer.hpp"

namespace drover::test {

/// The arguments that make this program a peer with `plan`, started by this process.
[[nodiscard]] std::vector<std::string> peer_arguments(const PeerPlan& plan);

/// Whether `arguments`, the program's name first, ask for the role of a peer.
[[nodiscard]] bool is_peer(std::span<char* const> arguments);

/// Runs the peer's body and returns the exit status: 0, or 1 when an assertion or exception failed it.
int run_peer(std::span<char* const> arguments);

}  // namespace drover::test
