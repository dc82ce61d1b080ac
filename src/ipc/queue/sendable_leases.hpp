// ipc/queue/sendable_leases.hpp: leases on their way into a record.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "drover/ipc/lease.hpp"
#include "ipc/ledger/sent_lease.hpp"
#include "ipc/queue/ring_layout.hpp"

namespace drover {

/// The leases of one put: checked before a slot is taken, written into it, and given away after the publication. A
/// lease in transit to which no record refers would be lost, hence that order.
class SendableLeases {
 public:
  /// Throws `Errc::invalid_argument` if there are too many, or one that claims nothing or is not of `membership`'s
  /// session.
  SendableLeases(std::span<Lease> leases, const Membership& membership) : leases_(leases) {
    if (!leases.empty()) read(membership);
  }

  /// Writes them beside a record that will be published; returns its head with their number.
  [[nodiscard]] RecordHead write(RecordHead head, SentLeaseWords* to) const {
    if (!leases_.empty()) write_all(to);
    return head.with_leases(leases_.size());
  }
  /// After the record was published.
  void give_away() const {
    if (!leases_.empty()) give_all_away();
  }

 private:
  void read(const Membership& membership);
  void write_all(SentLeaseWords* to) const;
  void give_all_away() const;

  std::span<Lease> leases_;
  std::vector<SentLease> words_;
};

}  // namespace drover
