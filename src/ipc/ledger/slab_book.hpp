// ipc/ledger/slab_book.hpp: one opening of a slab's ledger by this process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "drover/ipc/lease.hpp"
#include "drover/ipc/shared_object.hpp"
#include "ipc/ledger/sent_lease.hpp"
#include "ipc/ledger/slab_layout.hpp"
#include "ipc/ledger/slab_ledger.hpp"

namespace drover {

/// The ledger of a slab as this process uses it: makes leases, sends them, receives them. Safe for all threads.
class SlabBook : public std::enable_shared_from_this<SlabBook> {
 public:
  /// Makes the ledger of a slab of `bytes`, whose memory is `file`; the keeper holds the file as long as the ledger
  /// exists. `marks` say to the caller's like what memory it is.
  [[nodiscard]] static std::shared_ptr<SlabBook> make(std::shared_ptr<Membership> membership, std::uint64_t bytes,
                                                      const Fd& file, const SlabMarks& marks = {});
  /// Opens one that exists; the same for all callers of this process while anyone has it.
  [[nodiscard]] static std::shared_ptr<SlabBook> open(const std::shared_ptr<Membership>& membership,
                                                      const ObjectHandle& handle);
  explicit SlabBook(SharedObject object);

  /// A block of at least `bytes` with a lease on it; an empty one if the slab has no room for it now, or another
  /// stood still in its ledger until the deadline.
  [[nodiscard]] Lease allocate(std::uint64_t bytes, Deadline deadline = Deadline::never());
  /// One more on the block of `lease`, for this process.
  [[nodiscard]] Lease share(const Lease& lease);
  /// Whether there is no other on its block; then only who has it can make another. False where that cannot be told
  /// now: somebody stands still in the ledger, or the session is over.
  [[nodiscard]] static bool is_only(const Lease& lease) noexcept;
  /// Ends it. Requires: it is of this slab.
  void end(Lease& lease) noexcept;

  /// The words under which a lease travels. Throws `Errc::invalid_argument` if it claims nothing, or a block of
  /// another session than `membership`'s.
  [[nodiscard]] static SentLease to_send(const Lease& lease, const Membership& membership);
  /// Before a message that refers to it is published, or the session is asked to keep it. False if it has ended, by
  /// whoever spoiled the ledger.
  static bool begin_sending(const Lease& lease);
  /// Offers a lease to the keeper, which may take it from now on. False if it is no longer this process's.
  [[nodiscard]] static bool offer(const Lease& lease);
  /// Takes it back. False if the keeper has it.
  [[nodiscard]] static bool stop_offering(const Lease& lease);
  /// It is another's: this process has it no longer.
  static void forget(Lease& lease) noexcept;
  /// After that: it is the message's, or already its receiver's, who may be another thread of this process.
  static void sent(Lease& lease);
  /// Gives a lease that was received back to its message, which nobody else can read yet.
  static void hand_back(Lease& lease);
  /// Whether it is of this session.
  [[nodiscard]] static bool is_of(const Lease& lease, const Membership& membership) noexcept;
  /// Takes over what a message refers to. Throws `Errc::not_found` for what has ended or never was.
  [[nodiscard]] static Lease receive(const std::shared_ptr<Membership>& membership, const SentLease& sent);
  /// One more lease, of this process, on the block of one that the session keeps. Throws `Errc::not_found` if that
  /// has ended.
  [[nodiscard]] static Lease share_kept(const std::shared_ptr<Membership>& membership, const SentLease& kept);
  /// Takes over what a message refers to, and ends it; where that is impossible it is logged.
  static void end_sent(const std::shared_ptr<Membership>& membership, const SentLease& sent) noexcept;

  [[nodiscard]] const SharedObject& object() const noexcept { return object_; }
  [[nodiscard]] const SlabLedger& ledger() const noexcept { return ledger_; }
  /// A new descriptor of the slab's memory.
  [[nodiscard]] Fd file() const { return object_.membership().file_of(object_.handle()); }

 private:
  [[nodiscard]] Lease lease_of(LeaseRef ref);

  SharedObject object_;
  SlabLedger ledger_;
};

}  // namespace drover
