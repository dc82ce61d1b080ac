#include "ipc/ledger/open_ledger.hpp"

#include <chrono>
#include <exception>
#include <map>
#include <utility>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/base/mutex.hpp"
#include "ipc/ledger/slab_layout.hpp"

namespace drover::ipc {
namespace {

// The ledgers open in this process, so that a slab whose leases come and go is opened once.
struct OpenLedgers {
  using Key = std::pair<const Membership*, std::uint64_t>;
  Mutex mutex;
  std::map<Key, std::weak_ptr<OpenLedger>> all DROVER_GUARDED_BY(mutex);

  [[nodiscard]] std::shared_ptr<OpenLedger> find(const Key& key, const ObjectHandle& handle) const
      DROVER_REQUIRES(mutex) {
    const auto at = all.find(key);
    auto ledger = at == all.end() ? nullptr : at->second.lock();
    return ledger != nullptr && ledger->object().handle() == handle ? ledger : nullptr;
  }
};

OpenLedgers& open_ledgers() {
  static auto* const ledgers = new OpenLedgers;  // never destroyed: leases may outlive main
  return *ledgers;
}

}  // namespace

OpenLedger::OpenLedger(SharedObject object)
    : object_(std::move(object)), ledger_(object_.layout(), slab_geometry(object_.spec())) {}

std::shared_ptr<OpenLedger> OpenLedger::make(std::shared_ptr<Membership> membership, std::uint64_t bytes,
                                             const Fd& file, const SlabMarks& marks) {
  auto made = std::make_shared<OpenLedger>(SharedObject(std::move(membership), slab_spec(bytes, marks), file));
  OpenLedgers& open = open_ledgers();
  const MutexLock lock(open.mutex);
  open.all[{&made->object_.membership(), made->object_.handle().generation}] = made;
  return made;
}

// The keeper is asked without the mutex, since it may take long and other threads want ledgers that are open.
std::shared_ptr<OpenLedger> OpenLedger::open(const std::shared_ptr<Membership>& membership,
                                             const ObjectHandle& handle) {
  OpenLedgers& open = open_ledgers();
  const OpenLedgers::Key key{membership.get(), handle.generation};
  {
    const MutexLock lock(open.mutex);
    if (auto found = open.find(key, handle)) return found;
  }
  auto mine = std::make_shared<OpenLedger>(SharedObject(membership, handle, ObjectKind::slab));
  const MutexLock lock(open.mutex);
  if (auto found = open.find(key, handle)) return found;  // another thread was faster
  std::erase_if(open.all, [](const auto& entry) { return entry.second.expired(); });
  open.all[key] = mine;
  return mine;
}

LeaseRef OpenLedger::ref_of(const Lease& lease) noexcept {
  return {.index = lease.index_, .generation = lease.generation_};
}

Lease OpenLedger::lease_of(LeaseRef ref) {
  const BlockRange range = ledger_.range_of(ref);
  Lease lease;
  lease.ledger_ = shared_from_this();
  lease.index_ = ref.index;
  lease.generation_ = ref.generation;
  lease.offset_ = range.offset;
  lease.bytes_ = range.bytes;
  return lease;
}

Lease OpenLedger::allocate(std::uint64_t bytes, Deadline deadline) {
  const auto ref = ledger_.allocate(bytes, object_.self(), object_.membership(), deadline);
  return ref ? lease_of(*ref) : Lease{};
}

Lease OpenLedger::share(const Lease& lease, std::optional<std::uint32_t> part) {
  return lease_of(ledger_.share(ref_of(lease), object_.self(), object_.membership(), part));
}

Lease OpenLedger::share_part(const Lease& lease, std::uint32_t part) {
  require(lease.is_open(), "cannot share an empty lease (already sent or released)");
  return lease.ledger_->share(lease, part);
}

std::optional<std::vector<std::uint32_t>> OpenLedger::parts_of(const Lease& lease) noexcept {
  const OpenLedger& open = *lease.ledger_;
  try {
    return open.ledger_.parts_of(ref_of(lease), open.object_.membership());
  } catch (const std::exception& error) {
    log(LogLevel::debug, error.what());
    return std::nullopt;
  }
}

// Leases of the dead count until a participant uses the ledger.
bool OpenLedger::is_only(const Lease& lease) noexcept {
  const OpenLedger& open = *lease.ledger_;
  try {
    return open.ledger_.is_only(ref_of(lease), open.object_.membership());
  } catch (const std::exception& error) {
    log(LogLevel::debug, error.what());
    return false;
  }
}

// In a forked child the lease is its parent's.
void OpenLedger::end(Lease& lease) noexcept {
  const auto keep_alive = std::exchange(lease.ledger_, nullptr);
  const Owner me = object_.membership().self();
  if (me == kNobody) return;
  try {
    ledger_.release(ref_of(lease), me, object_.membership());
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

SentLease OpenLedger::to_send(const Lease& lease, const Membership& membership) {
  require(lease.is_open(), "cannot send an empty lease (already sent or released)",
          "send a lease once; share it first to send it again");
  require(is_of(lease, membership), "cannot send a lease to another session",
          "copy the data into memory of that session");
  return {.slab = lease.ledger_->object_.handle(), .lease = ref_of(lease)};
}

bool OpenLedger::is_of(const Lease& lease, const Membership& membership) noexcept {
  return lease.is_open() && &lease.ledger_->object_.membership() == &membership;
}

bool OpenLedger::begin_sending(const Lease& lease) {
  const OpenLedger& open = *lease.ledger_;
  const Owner me = open.object_.self();
  return open.ledger_.hand_over(ref_of(lease), me, sending_by(me));
}

bool OpenLedger::offer(const Lease& lease) {
  const OpenLedger& open = *lease.ledger_;
  const Owner me = open.object_.self();
  return open.ledger_.hand_over(ref_of(lease), me, offered_by(me));
}

bool OpenLedger::stop_offering(const Lease& lease) {
  const OpenLedger& open = *lease.ledger_;
  const Owner me = open.object_.self();
  return open.ledger_.hand_over(ref_of(lease), offered_by(me), me);
}

void OpenLedger::forget(Lease& lease) noexcept { lease.ledger_ = nullptr; }

// If the receiver of the message has the lease already, it is no longer being sent and the exchange fails.
void OpenLedger::sent(Lease& lease) {
  const auto open = std::exchange(lease.ledger_, nullptr);
  static_cast<void>(open->ledger_.hand_over(ref_of(lease), sending_by(open->object_.self()), kInTransit));
}

void OpenLedger::hand_back(Lease& lease) {
  const auto open = std::exchange(lease.ledger_, nullptr);
  static_cast<void>(open->ledger_.hand_over(ref_of(lease), open->object_.self(), kInTransit));
}

Lease OpenLedger::receive(const std::shared_ptr<Membership>& membership, const SentLease& sent, const Lease* before) {
  const bool is_same = before != nullptr && before->ledger_->object_.handle() == sent.slab;
  const auto ledger = is_same ? before->ledger_ : open(membership, sent.slab);
  ledger->ledger_.adopt(sent.lease, ledger->object_.self());
  return ledger->lease_of(sent.lease);
}

Lease OpenLedger::share_kept(const std::shared_ptr<Membership>& membership, const SentLease& kept) {
  const auto ledger = open(membership, kept.slab);
  return ledger->lease_of(ledger->ledger_.share(kept.lease, ledger->object_.self(), *membership));
}

void OpenLedger::end_sent(const std::shared_ptr<Membership>& membership, const SentLease& sent) noexcept {
  try {
    receive(membership, sent).release();
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

}  // namespace drover::ipc
