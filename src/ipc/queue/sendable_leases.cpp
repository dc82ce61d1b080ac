#include "ipc/queue/sendable_leases.hpp"

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/ledger/slab_book.hpp"

namespace drover {

void SendableLeases::read(const Membership& membership) {
  if (leases_.size() > kMostLeases) {
    throw Error(Errc::invalid_argument,
                fmt::format("a message was to carry {} leases; it carries at most {}", leases_.size(), kMostLeases),
                "send them with several messages");
  }
  words_.reserve(leases_.size());
  for (const Lease& lease : leases_) words_.push_back(SlabBook::to_send(lease, membership));
}

void SendableLeases::write_all(SentLeaseWords* to) const {
  for (std::size_t index = 0; index < leases_.size(); ++index) {
    to[index].store(words_[index]);
    static_cast<void>(SlabBook::begin_sending(leases_[index]));
  }
}

void SendableLeases::give_all_away() const {
  for (Lease& lease : leases_) SlabBook::sent(lease);
}

}  // namespace drover
