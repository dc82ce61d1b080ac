// tests/torture/ledger.hpp: a record of what every process did, in memory that outlives it; the truth against which a
// queue is checked.
//
// Producers number their messages without gaps. A producer killed in a put leaves a message that may or may not
// exist, because its put was never reported. All other messages are known exactly.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "drover/base/mapping.hpp"

namespace drover::test {

inline constexpr std::uint64_t kMostProducers = 16;
inline constexpr std::uint64_t kMostConsumers = 16;
inline constexpr std::uint64_t kMostHolders = 16;
inline constexpr std::uint64_t kMostNumber = std::uint64_t{1} << 20U;  ///< messages per producer and round

/// A message: its producer and number in one word, never 0.
struct MessageId {
  std::uint64_t producer = 0;
  std::uint64_t number = 0;  ///< counted from 1

  [[nodiscard]] std::uint64_t to_word() const noexcept { return producer << 32U | number; }
  [[nodiscard]] static MessageId from_word(std::uint64_t word) noexcept {
    return {.producer = word >> 32U, .number = word & 0xffff'ffffU};
  }
  [[nodiscard]] bool is_possible() const noexcept {
    return producer < kMostProducers && number >= 1 && number <= kMostNumber;
  }
};

/// The record of one producer and its replacements.
struct alignas(64) ProducerLedger {
  std::atomic<std::uint64_t> intended;  ///< number of the message whose put has begun
  std::atomic<std::uint64_t> reported;  ///< number of the last message whose put has returned
};

/// The record of one consumer and its replacements.
struct alignas(64) ConsumerLedger {
  std::atomic<std::uint64_t> holding;     ///< word of the message between `receive` and `done`; 0 if none
  std::atomic<std::uint32_t> is_getting;  ///< between the start of a get and its record here
  std::atomic<std::uint64_t> progress;    ///< messages handled
};

/// The data of a lock: two numbers that are equal whenever the lock is free, and the current holder.
struct alignas(64) LockLedger {
  std::atomic<std::uint32_t> inside;
  std::atomic<std::uint64_t> first;
  std::atomic<std::uint64_t> second;
  std::atomic<std::uint64_t> deaths_told;
};

/// Violations, counted by the process that notices.
struct Faults {
  std::atomic<std::uint64_t> torn;                 ///< a byte differs from the one written
  std::atomic<std::uint64_t> phantoms;             ///< delivered although never put
  std::atomic<std::uint64_t> wrong_duplicates;     ///< delivered again although no holder died
  std::atomic<std::uint64_t> repeated_after_done;  ///< delivered again although it was done
  std::atomic<std::uint64_t> wrong_keys;           ///< delivered again under another key
  std::atomic<std::uint64_t> unmarked_repeats;     ///< delivered again without being marked so
  std::atomic<std::uint64_t> broken_locks;         ///< two holders, or a death of the holder that was not reported
  std::atomic<std::uint64_t> exceptions;           ///< thrown by an operation

  [[nodiscard]] std::uint64_t sum() const noexcept {
    return torn + phantoms + wrong_duplicates + repeated_after_done + wrong_keys + unmarked_repeats + broken_locks +
           exceptions;
  }
};

/// Lies in shared memory; created before any participant is forked.
struct LedgerPage {
  std::array<ProducerLedger, kMostProducers> producers;
  std::array<ConsumerLedger, kMostConsumers> consumers;
  std::array<std::atomic<std::uint64_t>, kMostHolders> holder_progress;
  LockLedger lock;
  LockLedger rlock;
  std::atomic<std::uint32_t> permits_out;
  Faults faults;
};

/// The page and a few bytes for every message.
class Ledger {
 public:
  Ledger();

  [[nodiscard]] LedgerPage& page() const noexcept { return *reinterpret_cast<LedgerPage*>(page_.data()); }
  [[nodiscard]] Faults& faults() const noexcept { return page().faults; }

  /// For consumers: records a delivery and any violation.
  void note_delivery(MessageId id, std::uint64_t key, bool is_redelivered) const;
  /// For consumers: records that `done` has returned.
  void note_done(MessageId id) const;
  /// For the driver: allows one more delivery, because the holder died.
  void allow_again(MessageId id) const;
  /// For the driver: the put was interrupted before publication, so the message must never be delivered.
  void forbid(MessageId id) const;
  /// For the driver: the put was interrupted, possibly after publication.
  void note_uncertain(MessageId id) const;

  /// Totals over all messages.
  struct Sums {
    std::uint64_t published = 0;  ///< reported as put
    std::uint64_t deliveries = 0;
    std::uint64_t repeated = 0;   ///< messages delivered more than once because of a death
    std::uint64_t lost = 0;       ///< reported as put, but never delivered
    std::uint64_t uncertain = 0;  ///< put interrupted
  };
  [[nodiscard]] Sums sum_up() const;

 private:
  struct Entry {
    std::atomic<std::uint8_t> deliveries;
    std::atomic<std::uint8_t> allowed;  ///< deliveries beyond the first
    std::atomic<std::uint8_t> is_done;
    std::atomic<std::uint8_t> put;   ///< a PutFate
    std::atomic<std::uint32_t> key;  ///< low bits of its key, plus one
  };
  static_assert(sizeof(Entry) == 8);
  enum PutFate : std::uint8_t { as_reported, uncertain, forbidden };

  [[nodiscard]] Entry& entry(MessageId id) const noexcept;

  Mapping page_;
  Mapping entries_;
};

}  // namespace drover::test
