// ipc/queue/queue_layout.hpp: a queue as it lies in shared memory: ring, in-flight table, pool of blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "drover/ipc/membership.hpp"
#include "ipc/ledger/block_pool.hpp"
#include "ipc/ledger/sent_lease.hpp"
#include "ipc/object/object_kind.hpp"
#include "ipc/queue/ring.hpp"
#include "ipc/queue/ring_layout.hpp"

namespace drover::ipc {

/// The sizes of a queue; from the spec, never from shared memory.
struct QueueGeometry {
  std::uint64_t capacity = 0;  ///< records
  std::uint64_t flights = 0;   ///< entries of the in-flight table
  PoolGeometry pool;           ///< memory for messages over 1 KiB
};

inline constexpr std::uint64_t kMaxQueueCapacity = std::uint64_t{1} << 24U;
inline constexpr std::uint64_t kMaxFlights = 65536;
inline constexpr std::uint64_t kMaxPoolBytes = std::uint64_t{1} << 40U;

/// Reads the parameters of a spec; throws `Errc::invalid_argument`, with the limits, if they are impossible.
[[nodiscard]] QueueGeometry queue_geometry(const ObjectSpec& spec);

/// Whether waits continue when nobody else is left.
[[nodiscard]] inline bool waits_alone(const ObjectSpec& spec) noexcept { return spec.parameters[3] != 0; }

/// Offsets of the parts of a layout.
struct QueueOffsets {
  std::size_t slots;       ///< RingSlot[capacity]
  std::size_t flights;     ///< Flight[flights]
  std::size_t pool_state;  ///< of the block pool
  std::size_t inlined;     ///< kInlineBytes for each slot, then for each flight
  std::size_t leases;      ///< SentLeaseWords[kMostLeasesInSlot] for each slot, then for each flight
  std::size_t pool_data;   ///< the blocks
  std::size_t total;       ///< size of the layout
};
[[nodiscard]] QueueOffsets queue_offsets(const QueueGeometry& geometry);

/// Where a record is: in a slot of the ring, or in an entry of the in-flight table.
struct RecordPlace {
  std::uint64_t at = 0;    ///< position of the slot, or index of the flight
  bool is_flight = false;  ///< which of the two
};

/// A queue in this process's address space. Owns nothing. No operation waits, makes a system call or rings a bell.
struct QueueView {
  QueueView(std::byte* layout, const QueueGeometry& geometry);

  [[nodiscard]] RingHead& head() const noexcept { return ring.head(); }
  [[nodiscard]] bool is_closed() const noexcept { return head().is_closed.load() != 0; }
  /// Records that wait, including returned ones.
  [[nodiscard]] std::uint64_t size() const noexcept;

  /// The kInlineBytes that belong to a slot or flight.
  [[nodiscard]] std::byte* inlined_of_slot(std::uint64_t index) const noexcept {
    return inlined + index * kInlineBytes;
  }
  [[nodiscard]] std::byte* inlined_of_flight(std::uint64_t index) const noexcept {
    return inlined_of_slot(ring.capacity() + index);
  }
  /// The leases that lie beside the record of a slot or flight.
  [[nodiscard]] SentLeaseWords* leases_of_slot(std::uint64_t index) const noexcept {
    return leases + index * kMostLeasesInSlot;
  }
  [[nodiscard]] SentLeaseWords* leases_of_flight(std::uint64_t index) const noexcept {
    return leases_of_slot(ring.capacity() + index);
  }

  /// The record at a place and what belongs to it.
  [[nodiscard]] Record& record_of(RecordPlace place) const noexcept {
    return place.is_flight ? flights[place.at].record : ring.slot(place.at).record;
  }
  [[nodiscard]] std::byte* inlined_of(RecordPlace place) const noexcept {
    return place.is_flight ? inlined_of_flight(place.at) : inlined_of_slot(ring.index_of(place.at));
  }
  /// The leases that go with a record. Throws `Errc::corrupt` for a table that reaches outside of its block.
  [[nodiscard]] std::span<SentLeaseWords> leases_of(RecordPlace place, RecordHead record) const {
    if (record.has_many_leases()) return lease_table_of(record_of(place), record);
    return {place.is_flight ? leases_of_flight(place.at) : leases_of_slot(ring.index_of(place.at)), record.leases()};
  }
  /// The leases behind the bytes of a record. Throws `Errc::corrupt` as `leases_of`, and for a stale block.
  [[nodiscard]] std::span<SentLeaseWords> lease_table_of(const Record& record, RecordHead head) const;
  /// The position at which the record was put.
  [[nodiscard]] Position position_of(RecordPlace place) const noexcept {
    // relaxed: written before the word that was just read
    return place.is_flight ? flights[place.at].position.load(std::memory_order_relaxed) : place.at;
  }

  /// Whether a dead or unwilling consumer has returned a record.
  [[nodiscard]] bool has_returned() const noexcept;
  /// Claims such a record for `me`, flights first.
  [[nodiscard]] std::optional<RecordPlace> claim_returned(Owner me) const;
  /// Copies a record that `me` holds in a slot to the in-flight table; the slot stays held. nullopt if the table is
  /// full.
  [[nodiscard]] std::optional<RecordPlace> copy_to_flight(Position position, RecordHead record, Owner me) const;
  /// Frees the place of a record that `me` holds.
  void finish(RecordPlace place, Owner me) const {
    if (!place.is_flight) return ring.finish(place.at, me);
    auto& word = flights[place.at].word;
    word.store(next_lap(word.load()));
  }
  /// Returns a record that `me` holds to the other consumers, under the same position; raise the epoch afterwards.
  void give_back(RecordPlace place, Owner me) const;

  Ring ring;
  Flight* flights;
  std::uint64_t flight_count;
  BlockPool pool;
  std::byte* inlined;
  SentLeaseWords* leases;
  std::byte* pool_data;
};

/// Whether a record in a slot or flight with this word may still be read.
[[nodiscard]] constexpr bool may_be_read(SlotWord word) noexcept {
  const RingSlotState state = state_of(word);
  return state == RingSlotState::ready || state == RingSlotState::reading || state == RingSlotState::returned;
}

/// Calls `visit` with every record that may still be read. A record may be replaced meanwhile; then its reader has
/// adopted the memory that it referred to, which no longer belongs to the dead.
template <class Visit>
void for_each_record(const QueueView& queue, Visit visit) {
  for (std::uint64_t index = 0; index < queue.ring.capacity(); ++index) {
    const RingSlot& slot = queue.ring.slot(index);
    if (may_be_read(slot.word.load())) visit(slot.record);
  }
  for (std::uint64_t index = 0; index < queue.flight_count; ++index) {
    const Flight& flight = queue.flights[index];
    if (may_be_read(flight.word.load())) visit(flight.record);
  }
}

/// Calls `visit` with every lease of such a record.
void for_each_sent_lease(std::byte* layout, const ObjectSpec& spec,
                         const std::function<void(const SentLease&)>& visit);

/// The block of a record. Requires: its storage is `block`.
[[nodiscard]] BlockRef block_of(const Record& record) noexcept;
/// The overflow object of a record. Requires: its storage is `overflow`.
[[nodiscard]] OverflowRef overflow_of(const Record& record) noexcept;

/// The generation of the queue to which an overflow object belongs.
[[nodiscard]] inline std::uint64_t overflow_parent(const ObjectSpec& spec) noexcept { return spec.parameters[1]; }
/// Whether a record in the queue, or in flight, refers to the overflow object of this generation.
[[nodiscard]] bool queue_references(std::byte* layout, const ObjectSpec& spec, std::uint64_t overflow) noexcept;

}  // namespace drover::ipc
