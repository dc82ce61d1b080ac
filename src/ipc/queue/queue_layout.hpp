// ipc/queue/queue_layout.hpp: a queue as it lies in shared memory: ring, in-flight table, pool of blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "drover/ipc/membership.hpp"
#include "ipc/ledger/block_pool.hpp"
#include "ipc/ledger/sent_lease.hpp"
#include "ipc/object/object_kind.hpp"
#include "ipc/queue/ring.hpp"
#include "ipc/queue/ring_layout.hpp"

namespace drover {

/// What a queue was made with; from the spec, never from shared memory.
struct QueueGeometry {
  std::uint64_t capacity = 0;  ///< records
  std::uint64_t flights = 0;   ///< entries of the in-flight table
  PoolGeometry pool;           ///< memory for messages over 1 KiB
};

inline constexpr std::uint64_t kMaxQueueCapacity = std::uint64_t{1} << 24U;
inline constexpr std::uint64_t kMaxFlights = 65536;
inline constexpr std::uint64_t kMaxPoolBytes = std::uint64_t{1} << 40U;

/// Reads the parameters of a spec; throws `Errc::invalid_argument`, with the limits, for those that cannot be.
[[nodiscard]] QueueGeometry queue_geometry(const ObjectSpec& spec);

/// Whether waits go on when nobody else is left.
[[nodiscard]] inline bool waits_alone(const ObjectSpec& spec) noexcept { return spec.parameters[3] != 0; }

/// Where the parts of a layout begin, counted from it.
struct QueueOffsets {
  std::size_t slots;       ///< RingSlot[capacity]
  std::size_t flights;     ///< Flight[flights]
  std::size_t pool_state;  ///< of the block pool
  std::size_t inlined;     ///< kInlineBytes for each slot, then for each flight
  std::size_t leases;      ///< SentLeaseWords[kMostLeases] for each slot, then for each flight
  std::size_t pool_data;   ///< the blocks
  std::size_t total;       ///< size of all
};
[[nodiscard]] QueueOffsets queue_offsets(const QueueGeometry& geometry);

/// A queue in this process's address space. Owns nothing; no operation waits.
struct QueueView {
  QueueView(std::byte* layout, const QueueGeometry& geometry);

  /// The bytes that belong to a slot or flight, for inlined messages.
  [[nodiscard]] std::byte* inlined_of_slot(std::uint64_t index) const noexcept {
    return inlined + index * kInlineBytes;
  }
  [[nodiscard]] std::byte* inlined_of_flight(std::uint64_t index) const noexcept {
    return inlined + (ring.capacity() + index) * kInlineBytes;
  }

  /// The leases that go with the record of a slot or flight.
  [[nodiscard]] SentLeaseWords* leases_of_slot(std::uint64_t index) const noexcept {
    return leases + index * kMostLeases;
  }
  [[nodiscard]] SentLeaseWords* leases_of_flight(std::uint64_t index) const noexcept {
    return leases + (ring.capacity() + index) * kMostLeases;
  }

  Ring ring;
  Flight* flights;
  std::uint64_t flight_count;
  BlockPool pool;
  std::byte* inlined;
  SentLeaseWords* leases;
  std::byte* pool_data;
};

/// Whether a record in such a slot or flight may still be read, by whomever.
[[nodiscard]] constexpr bool may_be_read(SlotWord word) noexcept {
  const SlotState state = state_of(word);
  return state == SlotState::ready || state == SlotState::reading || state == SlotState::returned;
}

/// Calls `visit` with the record of every slot and flight that somebody may still read. It may be replaced at that
/// moment; then its reader has stamped itself on what it referred to, which no longer belongs to the dead.
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

/// Calls `visit` with every lease that goes with such a record.
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

extern const ObjectKindInfo queue_kind;
extern const ObjectKindInfo overflow_kind;

}  // namespace drover
