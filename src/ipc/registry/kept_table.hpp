// ipc/registry/kept_table.hpp: the entries that the keeper keeps under names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "ipc/ledger/kept_entry.hpp"
#include "ipc/registry/object_table.hpp"

namespace drover::ipc {

/// Holds leases for the session. Keeps their slabs open as `kKept`, and moves leases in the ledgers without a lock,
/// so that it waits for nobody. Lives in the keeper. Not synchronised.
class KeptTable {
 public:
  explicit KeptTable(ObjectTable& objects) noexcept : objects_(objects) {}

  /// Takes over leases that `sender` offers (`offered_by`), all or none, and replaces the entry of the name. Throws
  /// `Errc::invalid_argument` for a wrong name and a lease that `sender` does not offer, `Errc::not_found` for one
  /// that has ended, `Errc::limit_reached` if there are kMostKept names, `Errc::corrupt` if the ledger is corrupt.
  void keep(KeptEntry entry, Owner sender);
  /// The entry of a name. Throws `Errc::not_found`, with similar names.
  [[nodiscard]] const KeptEntry& find(const std::string& name) const;
  /// The first entry after a name; nullptr after the last.
  [[nodiscard]] const KeptEntry* next(const std::string& name) const;
  /// Removes the entry and ends its leases. Throws as `find`.
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
  std::map<ObjectHandle, std::uint64_t> slabs_;  // number of kept leases in each
};

}  // namespace drover::ipc
