// tests/support/backends.hpp: the backends that tests can use, and the check for device resources left behind.
#pragma once

#include <string>

#include "drover/device/info.hpp"
#include "support/peer.hpp"

namespace drover::test {

/// Why tests of this kind of device cannot run here; empty if they can. In that case every later test is checked for
/// device resources left behind, and descriptors that a driver keeps are ignored. A program that links this file has
/// its own group of emulated devices.
[[nodiscard]] std::string reason_to_skip(BackendKind kind);
/// The kind of device that a peer's parameter `backend` names.
[[nodiscard]] BackendKind kind_of(const Peer& peer);

}  // namespace drover::test
