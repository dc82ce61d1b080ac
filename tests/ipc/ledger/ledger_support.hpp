// tests/ipc/ledger/ledger_support.hpp: what the tests of slab ledgers share: state in private memory and an audit.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "ipc/ledger/ledger_core.hpp"
#include "ipc/ledger/pool_support.hpp"
#include "ipc/ledger/slab_ledger.hpp"

namespace drover::test {

/// A ledger of that many chunks and leases.
constexpr ipc::LedgerGeometry ledger_of(std::uint32_t chunk_number, std::uint32_t leases) {
  return {.pool = chunks(chunk_number), .leases = leases};
}

/// The state of a ledger.
class LedgerMemory : public PrivateState {
 public:
  explicit LedgerMemory(const ipc::LedgerGeometry& geometry)
      : PrivateState(ipc::ledger_state_bytes(geometry)), geometry_(geometry) {
    ipc::format_ledger(data(), geometry);
  }
  [[nodiscard]] ipc::SlabLedger ledger() { return {data(), geometry_}; }
  [[nodiscard]] ipc::LedgerView view() { return {data(), geometry_}; }

 private:
  ipc::LedgerGeometry geometry_;
};

/// The leases of a holder, by cell.
inline std::map<std::uint32_t, ipc::LeaseState> leases_of(const ipc::LedgerView& view, Owner holder) {
  std::map<std::uint32_t, ipc::LeaseState> leases;
  for (std::uint32_t index = 0; index < view.capacity; ++index) {
    const ipc::LeaseState lease = ipc::decode_lease(view.cells[index].word.load());
    if (lease.is_used && lease.holder == holder) leases[index] = lease;
  }
  return leases;
}

/// Checks that all derived state agrees with the words, that all blocks have leases, and that all leases are on
/// blocks. Empty if so.
class LedgerAudit {
 public:
  explicit LedgerAudit(const ipc::LedgerView& view) : view_(view), problems_(audit(view.pool)) {}

  [[nodiscard]] std::string run() {
    count_leases();
    check_blocks();
    check_free_cells();
    expect(view_.header.used == used_, "leases are counted wrongly");
    expect(view_.header.orphans == ipc::kNoLink, "orphans wait");
    return std::move(problems_);
  }

 private:
  void expect(bool holds, const std::string& problem) {
    if (!holds) problems_ += problem + "\n";
  }

  void count_leases() {
    for (std::uint32_t index = 0; index < view_.capacity; ++index) {
      const ipc::LeaseState lease = ipc::decode_lease(view_.cells[index].word.load());
      if (!lease.is_used) continue;
      ++used_;
      ++on_block_[lease.chunk];
      expect(index < view_.header.fresh, fmt::format("lease {} is in a cell that was never used", index));
      expect(lease.holder != kNobody, fmt::format("lease {} is an orphan", index));
    }
  }

  void check_blocks() {
    for (const auto& [chunk, extent] : tiling_of(view_.pool)) {
      if (!extent.is_used) continue;
      expect(extent.owner == ipc::kSlabItself, fmt::format("block {} has an owner", chunk));
      expect(on_block_.contains(chunk), fmt::format("block {} has no lease", chunk));
      expect(view_.pool.cells[chunk].leases == on_block_[chunk],
             fmt::format("the leases of {} are counted wrongly", chunk));
      on_block_.erase(chunk);
    }
    expect(on_block_.empty(), "there is a lease on what is no block");
  }

  void check_free_cells() {
    std::set<std::uint32_t> listed;
    for (ipc::Link link = view_.header.free; link != ipc::kNoLink; link = view_.cells[link - 1].next) {
      if (link > view_.capacity || !listed.insert(link - 1).second) return expect(false, "the stack has a bad link");
    }
    std::set<std::uint32_t> free;
    for (std::uint32_t index = 0; index < view_.header.fresh; ++index) {
      if (!ipc::decode_lease(view_.cells[index].word.load()).is_used) free.insert(index);
    }
    expect(free == listed, "the stack holds other cells than the free ones");
  }

  ipc::LedgerView view_;
  std::string problems_;
  std::map<std::uint32_t, std::uint32_t> on_block_;
  std::uint32_t used_ = 0;
};

/// Empty if the ledger is consistent and not in use.
[[nodiscard]] inline std::string audit(const ipc::LedgerView& view) { return LedgerAudit(view).run(); }

/// A predicate for `recover`: no message refers to any lease.
inline bool never_sent(ipc::LeaseRef) { return false; }

}  // namespace drover::test
