// session/wire/kept_wire.hpp: encodes kept entries, which follow control messages.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "ipc/ledger/kept_entry.hpp"

namespace drover::session {

/// Maximum size of the encoded form.
inline constexpr std::size_t kMostKeptBytes =
    40 + kMostKeptNameBytes + kMostKeptDescriptionBytes + kMostKeptRecordBytes + kMostKeptLeases * 32;

/// Encodes an entry. Requires: it is within the limits of `drover/ipc/lease.hpp`.
[[nodiscard]] std::string encode_kept(const ipc::KeptEntry& entry);
/// Decodes untrusted bytes. Throws `Errc::corrupt` for a wrong length, a value beyond the limits, or control
/// characters. The name may be empty.
[[nodiscard]] ipc::KeptEntry parse_kept(std::span<const std::byte> bytes);

}  // namespace drover::session
