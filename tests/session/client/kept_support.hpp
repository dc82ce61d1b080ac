// tests/session/client/kept_support.hpp: blocks with a number in them, to be kept and recalled.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "drover/base/mapping.hpp"
#include "drover/ipc/lease.hpp"
#include "drover/session/session.hpp"
#include "ipc/ledger/open_ledger.hpp"

namespace drover::test {

inline constexpr std::uint64_t kKeptSlabBytes = 16 * 1024 * 1024;
inline constexpr std::uint64_t kKeptBlockBytes = 4096;

inline std::shared_ptr<Membership> membership_of(const Session& session) { return session; }

/// A new slab of the session, in host memory.
inline std::shared_ptr<ipc::OpenLedger> make_kept_slab(const Session& session) {
  return ipc::OpenLedger::make(session, kKeptSlabBytes, make_memory_file("slab to keep", kKeptSlabBytes));
}

/// The first bytes of a lease's block, as every process sees them.
inline void write_mark(ipc::OpenLedger& slab, const Lease& lease, std::uint64_t mark) {
  const Mapping memory = Mapping::shared(slab.file(), kKeptSlabBytes);
  std::memcpy(memory.data() + lease.offset(), &mark, sizeof(mark));
}
inline std::uint64_t read_mark(const Session& session, const Lease& lease) {
  const Mapping memory = Mapping::shared(ipc::OpenLedger::open(session, lease.slab())->file(), kKeptSlabBytes);
  std::uint64_t mark = 0;
  std::memcpy(&mark, memory.data() + lease.offset(), sizeof(mark));
  return mark;
}

/// Blocks that all have the same mark.
inline std::vector<Lease> marked_blocks(ipc::OpenLedger& slab, std::size_t count, std::uint64_t mark) {
  std::vector<Lease> leases;
  for (std::size_t number = 0; number < count; ++number) {
    leases.push_back(slab.allocate(kKeptBlockBytes));
    write_mark(slab, leases.back(), mark);
  }
  return leases;
}

/// Keeps them, with the mark as the record.
inline void keep_marked(const Session& session, const std::string& name, std::vector<Lease>& leases,
                        std::uint64_t mark) {
  membership_of(session)->keep(name, std::as_bytes(std::span(&mark, 1)), "marked blocks", leases);
}

/// The mark that was kept as a record.
inline std::uint64_t mark_in(const Recalled& recalled) {
  std::uint64_t mark = 0;
  if (recalled.record.size() == sizeof(mark)) std::memcpy(&mark, recalled.record.data(), sizeof(mark));
  return mark;
}

}  // namespace drover::test
