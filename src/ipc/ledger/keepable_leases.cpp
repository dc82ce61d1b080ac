#include "ipc/ledger/keepable_leases.hpp"

#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/ledger/open_ledger.hpp"

namespace drover::ipc {

KeepableLeases::KeepableLeases(std::span<Lease> leases, const Membership& membership) : leases_(leases) {
  if (leases.size() > kMostKeptLeases) {
    throw Error(Errc::invalid_argument,
                fmt::format("cannot keep {} leases under one name: the limit is {}", leases.size(), kMostKeptLeases),
                "keep them under several names");
  }
  names_.reserve(leases.size());
  for (const Lease& lease : leases) names_.push_back(OpenLedger::to_send(lease, membership));
}

void KeepableLeases::offer(const std::function<void()>& ask) const {
  offer_all();
  try {
    ask();
  } catch (...) {
    if (take_back(leases_.size())) throw;
  }
}

void KeepableLeases::offer_all() const {
  for (std::size_t index = 0; index < leases_.size(); ++index) {
    if (OpenLedger::offer(leases_[index])) continue;
    static_cast<void>(take_back(index));
    throw Error(Errc::not_found, fmt::format("cannot keep lease {}: it has ended", index),
                "look for a process that writes outside its memory");
  }
}

// Withdraws the first `offered`. False if the keeper has taken them.
bool KeepableLeases::take_back(std::size_t offered) const {
  if (offered > 0 && !OpenLedger::stop_offering(leases_.front())) return false;
  for (std::size_t index = 1; index < offered; ++index) static_cast<void>(OpenLedger::stop_offering(leases_[index]));
  return true;
}

void KeepableLeases::give_away() const noexcept {
  for (Lease& lease : leases_) OpenLedger::forget(lease);
}

// Every further round sees other leases, because another participant has replaced them meanwhile.
Recalled recall_leases(const std::shared_ptr<Membership>& membership, const std::function<KeptEntry()>& ask) {
  std::vector<SentLease> gone;
  for (;;) {
    KeptEntry entry = ask();
    Recalled recalled{.record = std::move(entry.record), .leases = {}};
    try {
      for (const SentLease& kept : entry.leases) recalled.leases.push_back(OpenLedger::share_kept(membership, kept));
      return recalled;
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;
    }
    if (entry.leases == gone) {
      throw Error(Errc::corrupt, "leases that the session keeps have ended",
                  "look for a process that writes outside its memory; drop the name and keep it again");
    }
    gone = std::move(entry.leases);
  }
}

}  // namespace drover::ipc
