// ipc/ledger/kept_entry.hpp: an entry that the session keeps under a name, as the keeper holds it and as it travels.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "drover/ipc/lease.hpp"
#include "ipc/ledger/sent_lease.hpp"

namespace drover::ipc {

/// Everything under one name.
struct KeptEntry {
  KeptInfo info;
  std::vector<std::byte> record;
  std::vector<SentLease> leases;
};

/// Whether a text has no control characters.
[[nodiscard]] bool is_printable(std::string_view text) noexcept;
/// Throws `Errc::invalid_argument`, with the rules, for a text that cannot be the name of an entry.
void check_kept_name(std::string_view name);
/// An entry without leases. Throws `Errc::invalid_argument` if something is too long or not printable.
[[nodiscard]] KeptEntry make_kept_entry(std::string_view name, std::span<const std::byte> record,
                                        std::string_view description);

}  // namespace drover::ipc
