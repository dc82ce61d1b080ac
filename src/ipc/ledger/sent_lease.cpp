#include "ipc/ledger/sent_lease.hpp"

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/ledger/open_ledger.hpp"

namespace drover::ipc {

SentLeaseWords* LeaseTable::make(std::byte* block, std::uint64_t bytes, std::size_t leases) noexcept {
  auto* const number = reinterpret_cast<std::atomic<std::uint64_t>*>(block + begin_behind(bytes));
  number->store(leases, std::memory_order_relaxed);  // relaxed: the record is published later
  return reinterpret_cast<SentLeaseWords*>(number + 1);
}

std::span<SentLeaseWords> LeaseTable::find(std::byte* block, std::uint64_t bytes, std::uint64_t capacity) {
  if (bytes < capacity && end_behind(bytes, 0) <= capacity) {
    auto* const number = reinterpret_cast<std::atomic<std::uint64_t>*>(block + begin_behind(bytes));
    const std::uint64_t leases = number->load(std::memory_order_relaxed);  // relaxed: the record was read before
    const bool are_many = leases > kMostLeasesInSlot && leases <= kMostLeases;
    if (are_many && end_behind(bytes, leases) <= capacity) {
      return {reinterpret_cast<SentLeaseWords*>(number + 1), leases};
    }
  }
  throw Error(Errc::corrupt, "the leases of a message lie outside of its memory",
              "end the session and look for a process that writes outside its memory");
}

void SendableLeases::read(const Membership& membership) {
  if (leases_.size() > kMostLeases) {
    throw Error(Errc::invalid_argument,
                fmt::format("a message with {} leases cannot be sent: the limit is {}", leases_.size(), kMostLeases),
                "send them with several messages");
  }
  words_.reserve(leases_.size());
  for (const Lease& lease : leases_) words_.push_back(OpenLedger::to_send(lease, membership));
}

void SendableLeases::write_all(SentLeaseWords* to) const {
  for (std::size_t index = 0; index < leases_.size(); ++index) {
    to[index].store(words_[index]);
    static_cast<void>(OpenLedger::begin_sending(leases_[index]));
  }
}

void SendableLeases::give_all_away() const {
  for (Lease& lease : leases_) OpenLedger::sent(lease);
}

void receive_leases(const std::shared_ptr<Membership>& membership, std::span<const SentLeaseWords> sent,
                    std::vector<Lease>& into) {
  into.reserve(sent.size());
  for (const SentLeaseWords& each : sent) {
    const Lease* const before = into.empty() ? nullptr : &into.back();
    into.push_back(OpenLedger::receive(membership, each.load(), before));
  }
}

void end_leases(const std::shared_ptr<Membership>& membership, std::span<const SentLeaseWords> sent,
                std::vector<Lease>& received) {
  for (const SentLeaseWords& each : sent.subspan(received.size())) OpenLedger::end_sent(membership, each.load());
  received.clear();
}

void hand_back_leases(std::vector<Lease>& received) {
  for (Lease& lease : received) OpenLedger::hand_back(lease);
  received.clear();
}

}  // namespace drover::ipc
