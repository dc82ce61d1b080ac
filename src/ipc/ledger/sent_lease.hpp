// ipc/ledger/sent_lease.hpp: leases as messages carry them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "drover/ipc/lease.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/ledger/slab_ledger.hpp"

namespace drover::ipc {

inline constexpr std::size_t kMostLeasesInSlot = 32;               ///< beside a record; more lie behind its bytes
inline constexpr std::size_t kMostLeases = std::size_t{1} << 20U;  ///< in one message

/// Names a lease and its slab in every process of the session.
struct SentLease {
  ObjectHandle slab;
  LeaseRef lease;

  friend bool operator==(const SentLease&, const SentLease&) = default;
};

/// The same in shared memory: words, written and read one by one without order, because recovery reads records that
/// other participants may be replacing at that moment.
struct SentLeaseWords {
  std::array<std::atomic<std::uint64_t>, 4> words;

  void store(const SentLease& sent) noexcept {
    const std::array<std::uint64_t, 4> values = {sent.slab.generation, sent.slab.offset,
                                                 (std::uint64_t{sent.slab.slab} << 32U) | sent.lease.index,
                                                 sent.lease.generation};
    for (std::size_t i = 0; i < values.size(); ++i) words[i].store(values[i], std::memory_order_relaxed);
  }
  /// As read from shared memory: may name nothing.
  [[nodiscard]] SentLease load() const noexcept {
    std::array<std::uint64_t, 4> values{};
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = words[i].load(std::memory_order_relaxed);
    return {.slab = {.kind = ObjectKind::slab,
                     .slab = static_cast<std::uint32_t>(values[2] >> 32U),
                     .offset = values[1],
                     .generation = values[0]},
            .lease = {.index = static_cast<std::uint32_t>(values[2]),
                      .generation = static_cast<std::uint32_t>(values[3])}};
  }
  void copy_from(const SentLeaseWords& other) noexcept { store(other.load()); }
};
static_assert(sizeof(SentLeaseWords) == 32);

/// Many leases, behind the bytes of a message in its block: their number, then the words of each.
class LeaseTable {
 public:
  /// How much of a block a message of `bytes` takes with a table of `leases` behind it.
  [[nodiscard]] static constexpr std::uint64_t end_behind(std::uint64_t bytes, std::size_t leases) noexcept {
    return begin_behind(bytes) + sizeof(std::uint64_t) + leases * sizeof(SentLeaseWords);
  }
  /// Writes the number, and returns where the words go. Requires: room for them.
  [[nodiscard]] static SentLeaseWords* make(std::byte* block, std::uint64_t bytes, std::size_t leases) noexcept;
  /// The words of a table. Throws `Errc::corrupt` if they are too few, or reach behind the block's `capacity`.
  [[nodiscard]] static std::span<SentLeaseWords> find(std::byte* block, std::uint64_t bytes, std::uint64_t capacity);

 private:
  static constexpr std::uint64_t begin_behind(std::uint64_t bytes) noexcept { return (bytes + 7) / 8 * 8; }
};

/// The leases of one put: checked before a slot is claimed, written beside its record or behind its bytes, and given
/// away after the record is published. In any other order a death could leave a lease in transit to which no record
/// refers.
class SendableLeases {
 public:
  /// Throws `Errc::invalid_argument` if there are too many, or one is empty or not of `membership`'s session.
  SendableLeases(std::span<Lease> leases, const Membership& membership) : leases_(leases) {
    if (!leases.empty()) read(membership);
  }

  [[nodiscard]] std::size_t count() const noexcept { return leases_.size(); }
  /// Whether they need a LeaseTable.
  [[nodiscard]] bool are_many() const noexcept { return leases_.size() > kMostLeasesInSlot; }
  /// Writes them for a record that is about to be published; returns their number, for its head.
  [[nodiscard]] std::size_t write(SentLeaseWords* to) const {
    if (!leases_.empty()) write_all(to);
    return leases_.size();
  }
  /// Call after the record is published.
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

/// Takes over the leases of a record, in order; `into` has those that came before an exception.
void receive_leases(const std::shared_ptr<Membership>& membership, std::span<const SentLeaseWords> sent,
                    std::vector<Lease>& into);
/// Ends the leases of a record that nobody can use: those in `received`, and the rest of `sent`.
void end_leases(const std::shared_ptr<Membership>& membership, std::span<const SentLeaseWords> sent,
                std::vector<Lease>& received);
/// Returns leases to their record, which no other participant can read yet.
void hand_back_leases(std::vector<Lease>& received);

}  // namespace drover::ipc
