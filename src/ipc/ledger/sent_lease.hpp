// ipc/ledger/sent_lease.hpp: a lease as a message refers to it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "drover/ipc/membership.hpp"
#include "ipc/ledger/slab_ledger.hpp"

namespace drover {

inline constexpr std::size_t kMostLeases = 32;  ///< that one message may carry

/// Names a lease, and its slab's ledger, in every process of the session.
struct SentLease {
  ObjectHandle slab;
  LeaseRef lease;

  friend bool operator==(const SentLease&, const SentLease&) = default;
};

/// The same in shared memory: words, written and read one by one without order, since recovery looks at records that
/// the living may be replacing at that moment.
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

}  // namespace drover
