#include "ipc/ledger/sent_lease.hpp"

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/ledger/open_ledger.hpp"

namespace drover::ipc {

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
  for (const SentLeaseWords& each : sent) into.push_back(OpenLedger::receive(membership, each.load()));
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
