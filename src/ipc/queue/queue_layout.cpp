#include "ipc/queue/queue_layout.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::ipc {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uint64_t kSmallestChunk = 1024;
constexpr std::uint64_t kMostChunks = std::uint64_t{1} << 20U;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

PoolGeometry pool_geometry(std::uint64_t bytes) {
  std::uint64_t chunk = kSmallestChunk;
  while (bytes / chunk > kMostChunks) chunk *= 2;
  return {.bytes = rounded_up(std::max(bytes, kSmallestChunk), chunk),
          .chunk_bytes = static_cast<std::uint32_t>(chunk)};
}

std::size_t queue_bytes(const ObjectSpec& spec) { return queue_offsets(queue_geometry(spec)).total; }

void format_queue(std::byte* layout, const ObjectSpec& spec) {
  const QueueGeometry geometry = queue_geometry(spec);
  format_pool(layout + queue_offsets(geometry).pool_state, geometry.pool);  // the rest is zero
}

void recover_flights(const QueueView& queue, Owner dead) {
  for (std::uint64_t index = 0; index < queue.flight_count; ++index) {
    auto& word = queue.flights[index].word;
    SlotWord seen = word.load();
    if (owner_of(seen) != dead) continue;
    if (state_of(seen) == RingSlotState::writing) word.compare_exchange_strong(seen, next_lap(seen));
    if (state_of(seen) == RingSlotState::reading) {
      word.compare_exchange_strong(seen, make_slot_word(seen >> kLapShift, RingSlotState::returned));
    }
  }
}

void recover_slots(const QueueView& queue, Owner dead) {
  // A consumer that died between copying a record to the in-flight table and freeing its slot holds both.
  std::set<Position> in_flight;
  for (std::uint64_t index = 0; index < queue.flight_count; ++index) {
    const Flight& flight = queue.flights[index];
    const SlotWord word = flight.word.load();
    if (state_of(word) == RingSlotState::reading && owner_of(word) == dead) in_flight.insert(flight.position);
  }
  queue.ring.recover(dead, [&](std::uint64_t index, std::uint64_t lap) {
    return in_flight.contains(lap * queue.ring.capacity() + index);
  });
}

void recover_blocks(const QueueView& queue, Owner dead) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> referenced;
  for_each_record(queue, [&](const Record& record) {
    if (record.load_head().storage() != Storage::block) return;
    const BlockRef block = block_of(record);
    referenced.emplace(block.chunk, block.generation);
  });
  queue.pool.recover(dead, [&](BlockRef block) { return referenced.contains({block.chunk, block.generation}); });
}

void wake_queue(std::byte* layout, const ObjectSpec& spec) {
  const QueueView queue(layout, queue_geometry(spec));
  wake_always(queue.ring.head().record_ready);
  wake_always(queue.ring.head().slot_free);
  wake_always(queue.ring.head().bytes_free);
  queue.pool.wake_all();
}

// Slots before flights: while the flights still belong to the dead, nobody can take and finish one whose slot would
// then be returned as well. Both before blocks, so that records which the dead left half written refer to nothing.
void recover_queue(std::byte* layout, const ObjectSpec& spec, Owner dead) {
  const QueueView queue(layout, queue_geometry(spec));
  recover_slots(queue, dead);
  recover_flights(queue, dead);
  ++queue.ring.head().returned_epoch;
  recover_blocks(queue, dead);
  queue.ring.head().readers.at(dead / 64U).fetch_and(~(std::uint64_t{1} << (dead % 64U)));
  wake_queue(layout, spec);
}

std::size_t overflow_bytes(const ObjectSpec& spec) {
  require(spec.parameters[0] > 0 && spec.parameters[0] <= kMaxPoolBytes, "a message can have at most 1 TiB");
  return spec.parameters[0];
}

}  // namespace

const ObjectKindInfo queue_kind = {
    .layout_bytes = queue_bytes, .format = format_queue, .recover = recover_queue, .wake_all = wake_queue};

// The queue that refers to it decides its lifetime: ObjectTable::depart.
const ObjectKindInfo overflow_kind = {.layout_bytes = overflow_bytes,
                                      .format = [](std::byte*, const ObjectSpec&) {},
                                      .recover = [](std::byte*, const ObjectSpec&, Owner) {},
                                      .wake_all = [](std::byte*, const ObjectSpec&) {}};

QueueGeometry queue_geometry(const ObjectSpec& spec) {
  const auto& [capacity, bytes, flights, unused_a, unused_b, unused_c] = spec.parameters;
  if (capacity == 0 || capacity > kMaxQueueCapacity || bytes > kMaxPoolBytes || flights > kMaxFlights) {
    throw Error(
        Errc::invalid_argument,
        fmt::format("cannot make a queue of {} messages and {} bytes with {} in flight", capacity, bytes, flights),
        fmt::format("use a capacity of 1 to {}, bytes of at most {}, in_flight of at most {}", kMaxQueueCapacity,
                    kMaxPoolBytes, kMaxFlights));
  }
  return {.capacity = capacity, .flights = flights, .pool = pool_geometry(bytes)};
}

QueueOffsets queue_offsets(const QueueGeometry& geometry) {
  QueueOffsets offsets{};
  // Each slot starts at a pair of lines if the queue has a file of its own; the header precedes the layout.
  offsets.slots = rounded_up(sizeof(ObjectHeader) + sizeof(RingHead), sizeof(RingSlot)) - sizeof(ObjectHeader);
  offsets.flights = offsets.slots + geometry.capacity * sizeof(RingSlot);
  offsets.pool_state = offsets.flights + geometry.flights * sizeof(Flight);
  offsets.inlined = rounded_up(offsets.pool_state + pool_state_bytes(geometry.pool), kPage);
  const std::uint64_t places = geometry.capacity + geometry.flights;
  offsets.leases = offsets.inlined + places * kInlineBytes;
  // The blocks start at a page of the file, as their registration for devices requires.
  offsets.pool_data =
      rounded_up(sizeof(ObjectHeader) + offsets.leases + places * kMostLeasesInSlot * sizeof(SentLeaseWords), kPage) -
      sizeof(ObjectHeader);
  offsets.total = offsets.pool_data + geometry.pool.bytes;
  return offsets;
}

QueueView::QueueView(std::byte* layout, const QueueGeometry& geometry)
    : ring(*reinterpret_cast<RingHead*>(layout), reinterpret_cast<RingSlot*>(layout + queue_offsets(geometry).slots),
           geometry.capacity),
      flights(reinterpret_cast<Flight*>(layout + queue_offsets(geometry).flights)),
      flight_count(geometry.flights),
      pool(layout + queue_offsets(geometry).pool_state, geometry.pool),
      inlined(layout + queue_offsets(geometry).inlined),
      leases(reinterpret_cast<SentLeaseWords*>(layout + queue_offsets(geometry).leases)),
      pool_data(layout + queue_offsets(geometry).pool_data) {}

std::uint64_t QueueView::size() const noexcept {
  const auto returned = std::count_if(flights, flights + flight_count, [](const Flight& flight) {
    return state_of(flight.word.load()) == RingSlotState::returned;
  });
  return ring.count() + static_cast<std::uint64_t>(returned);
}

bool QueueView::has_returned() const noexcept {
  const auto is_returned = [](const Flight& flight) {
    return state_of(flight.word.load()) == RingSlotState::returned;
  };
  return std::any_of(flights, flights + flight_count, is_returned) || ring.has_returned();
}

std::optional<RecordPlace> QueueView::claim_returned(Owner me) const {
  for (std::uint64_t index = 0; index < flight_count; ++index) {
    auto& word = flights[index].word;
    SlotWord seen = word.load();
    if (state_of(seen) != RingSlotState::returned) continue;
    if (word.compare_exchange_strong(seen, make_slot_word(seen >> kLapShift, RingSlotState::reading, me))) {
      return RecordPlace{.at = index, .is_flight = true};
    }
  }
  if (const auto position = ring.claim_returned(me)) return RecordPlace{.at = *position};
  return std::nullopt;
}

std::optional<RecordPlace> QueueView::copy_to_flight(Position position, RecordHead record, Owner me) const {
  const RecordPlace slot{.at = position};
  for (std::uint64_t tries = 0; tries < flight_count; ++tries) {
    const std::uint64_t index = (position + tries) % flight_count;
    Flight& flight = flights[index];
    SlotWord seen = flight.word.load();
    if (state_of(seen) != RingSlotState::free) continue;
    const std::uint64_t lap = seen >> kLapShift;
    if (!flight.word.compare_exchange_strong(seen, make_slot_word(lap, RingSlotState::writing, me))) continue;
    flight.position.store(position, std::memory_order_relaxed);  // relaxed: the change of the word follows
    flight.record.copy_from(record_of(slot));
    flight.record.store_head(record);
    if (record.storage() == Storage::inlined) {
      std::memcpy(inlined_of_flight(index), inlined_of(slot), record.bytes());
    }
    if (!record.has_many_leases()) {
      SentLeaseWords* to = leases_of_flight(index);
      for (const SentLeaseWords& lease : leases_of(slot, record)) (to++)->copy_from(lease);
    }
    flight.word.store(make_slot_word(lap, RingSlotState::reading, me));
    return RecordPlace{.at = index, .is_flight = true};
  }
  return std::nullopt;
}

std::span<SentLeaseWords> QueueView::lease_table_of(const Record& record, RecordHead head) const {
  const BlockRef block = block_of(record);
  return LeaseTable::find(pool_data + pool.offset_of(block), head.bytes(), pool.capacity_of(block));
}

void QueueView::give_back(RecordPlace place, Owner me) const {
  if (!place.is_flight) return ring.give_back(place.at, me);
  auto& word = flights[place.at].word;
  word.store(make_slot_word(word.load() >> kLapShift, RingSlotState::returned));
}

void for_each_sent_lease(std::byte* layout, const ObjectSpec& spec,
                         const std::function<void(const SentLease&)>& visit) {
  const QueueView queue(layout, queue_geometry(spec));
  // A table that is not there any more has no leases to name: the record was taken meanwhile.
  const auto table_of = [&](const Record& record, RecordHead head) -> std::span<const SentLeaseWords> {
    try {
      return queue.lease_table_of(record, head);
    } catch (const Error&) {
      return {};
    }
  };
  const auto visit_all = [&](const Record& record, const SentLeaseWords* leases) {
    const RecordHead head = record.load_head();
    const auto all = head.has_many_leases() ? table_of(record, head)
                                            : std::span(leases, std::min(head.leases(), kMostLeasesInSlot));
    for (const SentLeaseWords& lease : all) visit(lease.load());
  };
  for (std::uint64_t index = 0; index < queue.ring.capacity(); ++index) {
    const RingSlot& slot = queue.ring.slot(index);
    if (may_be_read(slot.word.load())) visit_all(slot.record, queue.leases_of_slot(index));
  }
  for (std::uint64_t index = 0; index < queue.flight_count; ++index) {
    const Flight& flight = queue.flights[index];
    if (may_be_read(flight.word.load())) visit_all(flight.record, queue.leases_of_flight(index));
  }
}

BlockRef block_of(const Record& record) noexcept {
  std::uint64_t block = 0;
  record.load_small(&block, sizeof(block));
  return std::bit_cast<BlockRef>(block);
}

OverflowRef overflow_of(const Record& record) noexcept {
  OverflowRef overflow{};
  record.load_small(&overflow, sizeof(overflow));
  return overflow;
}

bool queue_references(std::byte* layout, const ObjectSpec& spec, std::uint64_t overflow) noexcept {
  const QueueView queue(layout, queue_geometry(spec));
  bool found = false;
  for_each_record(queue, [&](const Record& record) {
    found =
        found || (record.load_head().storage() == Storage::overflow && overflow_of(record).generation == overflow);
  });
  return found;
}

}  // namespace drover::ipc
