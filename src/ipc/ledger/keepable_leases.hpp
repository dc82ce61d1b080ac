// ipc/ledger/keepable_leases.hpp: leases on their way to the session, and back from it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "drover/ipc/lease.hpp"
#include "ipc/ledger/kept_entry.hpp"
#include "ipc/ledger/sent_lease.hpp"

namespace drover::ipc {

/// The leases of one `keep`: offered, requested, and given away. The keeper takes only offered leases, and the first
/// one before the others; so the holder of the first one has them all, even if the reply came too late.
class KeepableLeases {
 public:
  /// Throws `Errc::invalid_argument` if there are too many, or one is empty or not of `membership`'s session.
  KeepableLeases(std::span<Lease> leases, const Membership& membership);

  /// The names under which they travel.
  [[nodiscard]] const std::vector<SentLease>& names() const noexcept { return names_; }
  /// Offers them and calls `ask`, which asks the keeper. Returns if they were taken, even if the reply was lost;
  /// otherwise they are the caller's again, and rethrows the exception of `ask`. Requires: no earlier request is in
  /// flight.
  void offer(const std::function<void()>& ask) const;
  /// Empties them. Call after `offer`, without any lock that closing a slab needs.
  void give_away() const noexcept;

 private:
  void offer_all() const;
  [[nodiscard]] bool take_back(std::size_t offered) const;

  std::span<Lease> leases_;
  std::vector<SentLease> names_;
};

/// New leases of this process on the blocks of the entry that `ask` returns. Asks again if the entry was replaced
/// meanwhile. Throws what `ask` throws, and `Errc::corrupt` if kept leases have ended.
[[nodiscard]] Recalled recall_leases(const std::shared_ptr<Membership>& membership,
                                     const std::function<KeptEntry()>& ask);

}  // namespace drover::ipc
