#include "ipc/registry/departure.hpp"

#include <algorithm>
#include <exception>

#include "drover/base/log.hpp"
#include "ipc/ledger/slab_layout.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/queue/queue_layout.hpp"
#include "ipc/registry/object_kinds.hpp"

namespace drover::ipc {
namespace {

// An object corrupted by a participant must not stop the keeper.
template <class Work>
void log_failure_of(Work work) noexcept {
  try {
    work();
  } catch (const std::exception& error) {
    log(LogLevel::error, error.what());
  }
}

}  // namespace

Departure::Departure(ObjectTable& objects, Owner owner, pid_t pid) noexcept
    : objects_(objects), owner_(owner), pid_(pid) {
  const auto known = objects_.known_.extract(owner);
  if (known.empty()) return;
  known_.assign(known.mapped().begin(), known.mapped().end());
  std::ranges::partition(known_, [&](std::uint64_t generation) {
    return objects_.objects_.at(generation).handle.kind != ObjectKind::queue;  // locks and the like are quickly free
  });
}

// Objects may be freed between the steps.
bool Departure::work() noexcept {
  while (stage_ != Stage::over) {
    if (next_ == known_.size()) {
      next_ = 0;
      stage_ = static_cast<Stage>(static_cast<std::uint8_t>(stage_) + 1);
      if (stage_ == Stage::over) objects_.search_later();  // records that the dead left half written are gone
      continue;
    }
    const auto at = objects_.objects_.find(known_[next_++]);
    if (at == objects_.objects_.end()) continue;
    if (stage_ == Stage::slabs && at->second.handle.kind != ObjectKind::slab) continue;
    log_failure_of([&] { do_next(at->second); });
    return true;
  }
  return false;
}

void Departure::do_next(Entry& entry) {
  switch (stage_) {
    case Stage::objects:
      log_failure_of([&] { recover(entry); });
      if (entry.handle.kind == ObjectKind::queue) note_sent(entry);
      return;
    case Stage::slabs: return recover_slab_of(entry);
    case Stage::openings: return objects_.end_openings(entry, owner_, pid_);
    case Stage::over: return;
  }
}

void Departure::recover(const Entry& entry) const {
  info_of(entry.spec.kind).recover(layout_of(objects_.data_of(entry)), entry.spec, owner_);
}

// The leases of the dead to which a message refers. They are bounded by the leases of the slabs, whatever a
// participant wrote into its queues.
void Departure::note_sent(const Entry& queue) {
  for_each_sent_lease(layout_of(objects_.data_of(queue)), queue.spec, [&](const SentLease& each) {
    const Entry* const slab = objects_.find(each.slab);
    if (slab == nullptr || slab->handle.kind != ObjectKind::slab) return;
    const SlabLedger ledger(layout_of(objects_.data_of(*slab)), slab_geometry(slab->spec));
    if (ledger.is_of(each.lease, owner_)) sent_[each.slab.generation].insert(each.lease);
  });
}

void Departure::recover_slab_of(const Entry& slab) const {
  const auto leases = sent_.find(slab.handle.generation);
  recover_slab(layout_of(objects_.data_of(slab)), slab.spec, owner_,
               [&](LeaseRef lease) { return leases != sent_.end() && leases->second.contains(lease); });
}

}  // namespace drover::ipc
