#include "torture/ledger.hpp"

#include <algorithm>

namespace drover::test {
namespace {

Mapping shared_memory(const char* label, std::size_t bytes) {
  return Mapping::shared(make_memory_file(label, bytes), bytes);
}

}  // namespace

Ledger::Ledger()
    : page_(shared_memory("ledger", sizeof(LedgerPage))),
      entries_(shared_memory("ledger of messages", kMostProducers * (kMostNumber + 1) * sizeof(Entry))) {}

Ledger::Entry& Ledger::entry(MessageId id) const noexcept {
  return reinterpret_cast<Entry*>(entries_.data())[id.producer * (kMostNumber + 1) + id.number];
}

void Ledger::note_delivery(MessageId id, std::uint64_t key, bool is_redelivered) const {
  if (!id.is_possible() || id.number > page().producers[id.producer].intended.load()) {
    ++faults().phantoms;
    return;
  }
  Entry& at = entry(id);
  if (at.put.load() == forbidden) ++faults().phantoms;
  const auto key_bits = static_cast<std::uint32_t>(key + 1);
  std::uint32_t known = 0;
  if (!at.key.compare_exchange_strong(known, key_bits) && known != key_bits) ++faults().wrong_keys;
  if (at.is_done.load() != 0) ++faults().repeated_after_done;
  const unsigned earlier = at.deliveries.fetch_add(1);
  if (earlier > at.allowed.load()) ++faults().wrong_duplicates;
  if (earlier > 0 && !is_redelivered) ++faults().unmarked_repeats;
}

void Ledger::note_done(MessageId id) const {
  if (id.is_possible()) entry(id).is_done = 1;
}

void Ledger::allow_again(MessageId id) const {
  if (id.is_possible()) ++entry(id).allowed;
}

void Ledger::forbid(MessageId id) const {
  entry(id).put = forbidden;
  if (entry(id).deliveries.load() != 0) ++faults().phantoms;
}

void Ledger::note_uncertain(MessageId id) const { entry(id).put = uncertain; }

Ledger::Sums Ledger::sum_up() const {
  Sums sums;
  for (std::uint64_t producer = 0; producer < kMostProducers; ++producer) {
    const std::uint64_t last = std::min(page().producers[producer].intended.load(), kMostNumber);
    for (std::uint64_t number = 1; number <= last; ++number) {
      const Entry& at = entry({.producer = producer, .number = number});
      const unsigned deliveries = at.deliveries.load();
      const bool is_reported = at.put.load() == as_reported && number <= page().producers[producer].reported.load();
      sums.deliveries += deliveries;
      sums.repeated += deliveries > 1 ? 1U : 0U;
      sums.published += is_reported ? 1U : 0U;
      sums.uncertain += is_reported ? 0U : 1U;
      sums.lost += is_reported && deliveries == 0 ? 1U : 0U;
    }
  }
  return sums;
}

}  // namespace drover::test
