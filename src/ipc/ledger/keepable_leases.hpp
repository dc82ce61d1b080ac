// ipc/ledger/keepable_leases.hpp: leases on their way to the session, and back from it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "drover/ipc/kept.hpp"
#include "ipc/ledger/kept_entry.hpp"
#include "ipc/ledger/sent_lease.hpp"

namespace drover {

/// The leases of one `keep`: offered, asked for, and given away. The keeper takes only what is on offer, and the
/// first of them before the others; so whoever has the first one knows who has all, also when an answer came too
/// late.
class KeepableLeases {
 public:
  /// Throws `Errc::invalid_argument` if there are too many, or one that claims nothing or is not of `membership`'s
  /// session.
  KeepableLeases(std::span<Lease> leases, const Membership& membership);

  /// The words under which they travel.
  [[nodiscard]] const std::vector<SentLease>& names() const noexcept { return names_; }
  /// Offers them and lets `ask` ask the keeper. Returns if they were taken, whatever became of the answer; else they
  /// are the caller's again, and what `ask` threw goes on. Requires: no earlier request may still be on its way.
  void offer(const std::function<void()>& ask) const;
  /// Afterwards, and when the caller holds no lock that closing a slab needs: they are not this process's.
  void give_away() const noexcept;

 private:
  void offer_all() const;
  [[nodiscard]] bool take_back(std::size_t offered) const;

  std::span<Lease> leases_;
  std::vector<SentLease> names_;
};

/// New leases of this process on what the keeper says that it keeps. Asks again when that was replaced meanwhile.
/// Throws what `ask` throws, and `Errc::corrupt` if leases have ended that are kept.
[[nodiscard]] Recalled recall_leases(const std::shared_ptr<Membership>& membership,
                                     const std::function<KeptEntry()>& ask);

}  // namespace drover
