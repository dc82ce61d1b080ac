// tests/torture/ledger.hpp: what everybody did, in memory that outlives them; the truth against which a queue is
// held.
//
// Producers number their messages without gaps. One that was killed in a put leaves a message that may exist or not:
// its put was never reported. All others are known exactly.
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
inline constexpr std::uint64_t kMostNumber = std::uint64_t{1} << 20U;  ///< of messages of one producer in one round

/// A message: its producer and number in one word, never 0.
struct MessageId {
  std::uint64_t producer = 0;
  std::uint64_t number = 0;  ///< from 1

  [[nodiscard]] std::uint64_t to_word() const noexcept { return producer << 32U | number; }
  [[nodiscard]] static MessageId from_word(std::uint64_t word) noexcept {
    return {.producer = word >> 32U, .number = word & 0xffff'ffffU};
  }
  [[nodiscard]] bool is_possible() const noexcept {
    return producer < kMostProducers && number >= 1 && number <= kMostNumber;
  }
};

/// Across the incarnations of one producer.
struct alignas(64) ProducerLedger {
  std::atomic<std::uint64_t> intended;  ///< number of the message whose put has begun
  std::atomic<std::uint64_t> reported;  ///< number of the last message whose put has returned
};

/// Across the incarnations of one consumer.
struct alignas(64) ConsumerLedger {
  std::atomic<std::uint64_t> holding;     ///< word of the message that `receive` gave and `done` has not taken
  std::atomic<std::uint32_t> is_getting;  ///< between the begin of a get and its entry here
  std::atomic<std::uint64_t> progress;    ///< messages handled
};

/// What a lock guards: two numbers that are equal whenever the lock is free, and who is inside.
struct alignas(64) LockLedger {
  std::atomic<std::uint32_t> inside;
  std::atomic<std::uint64_t> first;
  std::atomic<std::uint64_t> second;
  std::atomic<std::uint64_t> deaths_told;
};

/// What may never happen, counted by whoever sees it.
struct Faults {
  std::atomic<std::uint64_t> torn;                 ///< not every byte as written
  std::atomic<std::uint64_t> phantoms;             ///< delivered although never put
  std::atomic<std::uint64_t> wrong_duplicates;     ///< delivered again although nobody died with it
  std::atomic<std::uint64_t> repeated_after_done;  ///< delivered again although it was done
  std::atomic<std::uint64_t> wrong_keys;           ///< delivered again under another key
  std::atomic<std::uint64_t> unmarked_repeats;     ///< delivered again without saying so
  std::atomic<std::uint64_t> broken_locks;         ///< two inside, or a death inside that nobody was told of
  std::atomic<std::uint64_t> exceptions;           ///< thrown by an operation

  [[nodiscard]] std::uint64_t sum() const noexcept {
    return torn + phantoms + wrong_duplicates + repeated_after_done + wrong_keys + unmarked_repeats + broken_locks +
           exceptions;
  }
};

/// In shared memory; made before any participant is forked.
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

  /// For consumers: notes a delivery and whatever is wrong with it.
  void note_delivery(MessageId id, std::uint64_t key, bool is_redelivered) const;
  /// For consumers: `done` has returned.
  void note_done(MessageId id) const;
  /// For the driver: one more delivery is right, since somebody died with it.
  void allow_again(MessageId id) const;
  /// For the driver: the put was cut off before the publication; nobody may ever see it.
  void forbid(MessageId id) const;
  /// For the driver: the put was cut off, and whether before the publication is not known.
  void note_uncertain(MessageId id) const;

  /// What became of all messages.
  struct Sums {
    std::uint64_t published = 0;  ///< reported as put
    std::uint64_t deliveries = 0;
    std::uint64_t repeated = 0;   ///< messages delivered more than once, as a death allows
    std::uint64_t lost = 0;       ///< reported as put and never delivered
    std::uint64_t uncertain = 0;  ///< cut off
  };
  [[nodiscard]] Sums sum_up() const;

 private:
  struct Entry {
    std::atomic<std::uint8_t> deliveries;
    std::atomic<std::uint8_t> allowed;  ///< beyond the first
    std::atomic<std::uint8_t> is_done;
    std::atomic<std::uint8_t> put;   ///< a PutFate
    std::atomic<std::uint32_t> key;  ///< its low bits, plus one
  };
  static_assert(sizeof(Entry) == 8);
  enum PutFate : std::uint8_t { as_reported, uncertain, forbidden };

  [[nodiscard]] Entry& entry(MessageId id) const noexcept;

  Mapping page_;
  Mapping entries_;
};

}  // namespace drover::test
