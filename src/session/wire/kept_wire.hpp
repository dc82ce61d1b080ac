// session/wire/kept_wire.hpp: something kept, as it travels behind a control message.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "ipc/ledger/kept_entry.hpp"

namespace drover {

/// The longest encoded form.
inline constexpr std::size_t kMostKeptBytes =
    40 + kMostKeptNameBytes + kMostKeptDescriptionBytes + kMostKeptRecordBytes + kMostKeptLeases * 32;

/// As bytes, as many as it needs. Requires: it is within the limits of `drover/ipc/kept.hpp`.
[[nodiscard]] std::string encode_kept(const KeptEntry& entry);
/// Reads what came from the other side and trusts nothing in it: throws `Errc::corrupt` for a wrong length, what is
/// beyond the limits, and control characters. The name may be empty. A pure function.
[[nodiscard]] KeptEntry parse_kept(std::span<const std::byte> bytes);

}  // namespace drover
