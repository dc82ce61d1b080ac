// ipc/registry/kept_table.hpp: what a session keeps under names, as the keeper holds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "ipc/ledger/kept_entry.hpp"
#include "ipc/registry/object_table.hpp"

namespace drover {

/// Holds leases for the session: it has their slabs open as `kKept` for as long, and changes hands in their ledgers
/// without a lock, so that it waits for nobody. Lives in the keeper. Not synchronised.
class KeptTable {
 public:
  explicit KeptTable(ObjectTable& objects) noexcept : objects_(objects) {}

  /// Takes over what `sender` offers (`offered_by`), whole or not at all, in place of what the name had. Throws
  /// `Errc::invalid_argument` for a wrong name and a lease that is not on offer by `sender`, `Errc::not_found` for
  /// one that has ended, `Errc::limit_reached` if there are kMostKept names, `Errc::corrupt` where the ledger is.
  void keep(KeptEntry entry, Owner sender);
  /// What the name has. Throws `Errc::not_found`, with names that are like it.
  [[nodiscard]] const KeptEntry& find(const std::string& name) const;
  /// The first entry behind a name; nullptr after the last.
  [[nodiscard]] const KeptEntry* next(const std::string& name) const;
  /// Ends the leases. Throws as `find`.
  void drop(const std::string& name);

 private:
  [[nodiscard]] std::uint64_t bytes_of(std::span<const SentLease> leases) const;
  void take(std::span<const SentLease> leases, Owner sender) const;
  void open_slabs(std::span<const SentLease> leases);
  void close_slabs(std::span<const SentLease> leases) noexcept;
  void end(std::span<const SentLease> leases) noexcept;
  [[noreturn]] void throw_not_found(const std::string& name) const;

  ObjectTable& objects_;
  std::map<std::string, KeptEntry> entries_;
  std::map<ObjectHandle, std::uint64_t> slabs_;  // how many leases are kept in each
};

}  // namespace drover
