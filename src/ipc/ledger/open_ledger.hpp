// ipc/ledger/open_ledger.hpp: a slab's ledger as one process has it open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "drover/ipc/lease.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/ledger/sent_lease.hpp"
#include "ipc/ledger/slab_layout.hpp"
#include "ipc/ledger/slab_ledger.hpp"

namespace drover::ipc {

/// The ledger of a slab as this process uses it: makes, sends and receives leases. Safe for all threads.
class OpenLedger : public std::enable_shared_from_this<OpenLedger> {
 public:
  /// Makes the ledger of a slab of `bytes` whose memory is `file`, which the keeper holds as long as the ledger
  /// exists. `marks` describe the memory to whoever opens it.
  [[nodiscard]] static std::shared_ptr<OpenLedger> make(std::shared_ptr<Membership> membership, std::uint64_t bytes,
                                                        const Fd& file, const SlabMarks& marks = {});
  /// Opens an existing one; all callers of this process share it while any of them has it.
  [[nodiscard]] static std::shared_ptr<OpenLedger> open(const std::shared_ptr<Membership>& membership,
                                                        const ObjectHandle& handle);
  explicit OpenLedger(SharedObject object);

  /// A lease on a new block of at least `bytes`; empty if the slab has no room now, or its lock was not free in time.
  [[nodiscard]] Lease allocate(std::uint64_t bytes, Deadline deadline = Deadline::never());
  /// Another lease of this process on the block of `lease`, and for the same part of it unless another is given.
  [[nodiscard]] Lease share(const Lease& lease, std::optional<std::uint32_t> part = std::nullopt);
  /// Another lease of this process on the block of `lease`, for a part of it: leases that are made of this one, in
  /// any process, stand for the same part.
  [[nodiscard]] static Lease share_part(const Lease& lease, std::uint32_t part);
  /// The parts of the lease's block for which there are leases; see SlabLedger::parts_of. nullopt if that cannot be
  /// determined now.
  [[nodiscard]] static std::optional<std::vector<std::uint32_t>> parts_of(const Lease& lease) noexcept;
  /// Whether it is the only lease on its block; then only its holder can make another. False if that cannot be
  /// determined now: the lock is held, or the session is over.
  [[nodiscard]] static bool is_only(const Lease& lease) noexcept;
  /// Ends it. Requires: it is of this slab.
  void end(Lease& lease) noexcept;

  /// The name under which a lease travels. Throws `Errc::invalid_argument` if it is empty, or of another session than
  /// `membership`'s.
  [[nodiscard]] static SentLease to_send(const Lease& lease, const Membership& membership);
  /// Call before the message that refers to it is published. False if it has ended because the ledger is corrupt.
  static bool begin_sending(const Lease& lease);
  /// Call after that: it is the message's, or already its receiver's, which may be another thread of this process.
  static void sent(Lease& lease);
  /// Offers a lease to the keeper, which may take it from now on. False if it is no longer this process's.
  [[nodiscard]] static bool offer(const Lease& lease);
  /// Withdraws the offer. False if the keeper has taken it.
  [[nodiscard]] static bool stop_offering(const Lease& lease);
  /// Empties a lease that another holder has taken.
  static void forget(Lease& lease) noexcept;
  /// Returns a received lease to its message, which no other participant can read yet.
  static void hand_back(Lease& lease);
  /// Whether it is of this session.
  [[nodiscard]] static bool is_of(const Lease& lease, const Membership& membership) noexcept;
  /// Takes over a lease that a message refers to. `before` is the lease before it in the message, or null: most lie
  /// in one slab, which is then looked up once. Throws `Errc::not_found` if it has ended or never existed.
  [[nodiscard]] static Lease receive(const std::shared_ptr<Membership>& membership, const SentLease& sent,
                                     const Lease* before = nullptr);
  /// A new lease of this process on the block of one that the session keeps. Throws `Errc::not_found` if that has
  /// ended.
  [[nodiscard]] static Lease share_kept(const std::shared_ptr<Membership>& membership, const SentLease& kept);
  /// Takes over a lease that a message refers to, and ends it; logs a failure.
  static void end_sent(const std::shared_ptr<Membership>& membership, const SentLease& sent) noexcept;

  [[nodiscard]] const SharedObject& object() const noexcept { return object_; }
  [[nodiscard]] const SlabLedger& ledger() const noexcept { return ledger_; }
  /// A new descriptor of the slab's memory.
  [[nodiscard]] Fd file() const { return object_.membership().file_of(object_.handle()); }

 private:
  [[nodiscard]] static LeaseRef ref_of(const Lease& lease) noexcept;
  [[nodiscard]] Lease lease_of(LeaseRef ref);

  SharedObject object_;
  SlabLedger ledger_;
};

}  // namespace drover::ipc
