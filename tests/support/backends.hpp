// tests/support/backends.hpp: devices in tests: which there are, and that nothing of them is left behind.
#pragma once

#include <string>

#include "drover/device/info.hpp"
#include "support/peer.hpp"

namespace drover::test {

/// Why tests of this kind of device cannot run here; empty if they can, and from then on every test is checked for
/// device resources left behind, while descriptors that a driver keeps are not counted. A program that links this has
/// emulated devices of its own.
[[nodiscard]] std::string reason_to_skip(BackendKind kind);
/// The kind of device that a peer's parameter `backend` names.
[[nodiscard]] BackendKind kind_of(const Peer& peer);

}  // namespace drover::test
