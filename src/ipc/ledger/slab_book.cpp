#include "ipc/ledger/slab_book.hpp"

#include <chrono>
#include <exception>
#include <map>
#include <utility>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/base/mutex.hpp"
#include "ipc/ledger/slab_layout.hpp"

namespace drover {
namespace {

// The books this process has open, so that a slab whose leases come and go is opened once.
struct OpenBooks {
  using Key = std::pair<const Membership*, std::uint64_t>;
  Mutex mutex;
  std::map<Key, std::weak_ptr<SlabBook>> books DROVER_GUARDED_BY(mutex);

  [[nodiscard]] std::shared_ptr<SlabBook> find(const Key& key, const ObjectHandle& handle) const
      DROVER_REQUIRES(mutex) {
    const auto at = books.find(key);
    auto book = at == books.end() ? nullptr : at->second.lock();
    return book != nullptr && book->object().handle() == handle ? book : nullptr;
  }
};

OpenBooks& open_books() {
  static auto* const books = new OpenBooks;  // never destroyed: leases may outlive main
  return *books;
}

}  // namespace

SlabBook::SlabBook(SharedObject object)
    : object_(std::move(object)), ledger_(object_.layout(), slab_geometry(object_.spec())) {}

std::shared_ptr<SlabBook> SlabBook::make(std::shared_ptr<Membership> membership, std::uint64_t bytes, const Fd& file,
                                         const SlabMarks& marks) {
  auto book = std::make_shared<SlabBook>(SharedObject(std::move(membership), slab_spec(bytes, marks), file));
  OpenBooks& open = open_books();
  const MutexLock lock(open.mutex);
  open.books[{&book->object_.membership(), book->object_.handle().generation}] = book;
  return book;
}

// The keeper is asked without the mutex: it may take its time, and others want books that are open.
std::shared_ptr<SlabBook> SlabBook::open(const std::shared_ptr<Membership>& membership, const ObjectHandle& handle) {
  OpenBooks& open = open_books();
  const OpenBooks::Key key{membership.get(), handle.generation};
  {
    const MutexLock lock(open.mutex);
    if (auto book = open.find(key, handle)) return book;
  }
  auto mine = std::make_shared<SlabBook>(SharedObject(membership, handle, ObjectKind::slab));
  const MutexLock lock(open.mutex);
  if (auto book = open.find(key, handle)) return book;  // another thread was faster
  std::erase_if(open.books, [](const auto& entry) { return entry.second.expired(); });
  open.books[key] = mine;
  return mine;
}

Lease SlabBook::lease_of(LeaseRef ref) {
  const BlockRange range = ledger_.range_of(ref);
  Lease lease;
  lease.book_ = shared_from_this();
  lease.index_ = ref.index;
  lease.generation_ = ref.generation;
  lease.offset_ = range.offset;
  lease.bytes_ = range.bytes;
  return lease;
}

Lease SlabBook::allocate(std::uint64_t bytes, Deadline deadline) {
  const auto ref = ledger_.allocate(bytes, object_.self(), object_.membership(), deadline);
  return ref ? lease_of(*ref) : Lease{};
}

Lease SlabBook::share(const Lease& lease) {
  const LeaseRef ref{.index = lease.index_, .generation = lease.generation_};
  return lease_of(ledger_.share(ref, object_.self(), object_.membership()));
}

// Leases of the dead count until somebody uses the ledger.
bool SlabBook::is_only(const Lease& lease) noexcept {
  const SlabBook& book = *lease.book_;
  try {
    const LeaseRef ref{.index = lease.index_, .generation = lease.generation_};
    return book.ledger_.is_only(ref, book.object_.membership());
  } catch (const std::exception& error) {
    log(LogLevel::debug, error.what());
    return false;
  }
}

// In a forked child it is its parent's.
void SlabBook::end(Lease& lease) noexcept {
  const auto keep_open = std::exchange(lease.book_, nullptr);
  const Owner me = object_.membership().self();
  if (me == kNobody) return;
  try {
    ledger_.release({.index = lease.index_, .generation = lease.generation_}, me, object_.membership());
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

SentLease SlabBook::to_send(const Lease& lease, const Membership& membership) {
  require(lease.is_open(), "a lease that claims nothing was to be sent",
          "send one that was not sent or released before");
  require(is_of(lease, membership), "a lease was to be sent to another session",
          "copy the data into memory of that session");
  return {.slab = lease.book_->object_.handle(), .lease = {.index = lease.index_, .generation = lease.generation_}};
}

bool SlabBook::is_of(const Lease& lease, const Membership& membership) noexcept {
  return lease.is_open() && &lease.book_->object_.membership() == &membership;
}

bool SlabBook::begin_sending(const Lease& lease) {
  const SlabBook& book = *lease.book_;
  const Owner me = book.object_.self();
  const LeaseRef ref{.index = lease.index_, .generation = lease.generation_};
  return book.ledger_.hand_over(ref, me, sending_by(me));
}

bool SlabBook::offer(const Lease& lease) {
  const SlabBook& book = *lease.book_;
  const Owner me = book.object_.self();
  const LeaseRef ref{.index = lease.index_, .generation = lease.generation_};
  return book.ledger_.hand_over(ref, me, offered_by(me));
}

bool SlabBook::stop_offering(const Lease& lease) {
  const SlabBook& book = *lease.book_;
  const Owner me = book.object_.self();
  const LeaseRef ref{.index = lease.index_, .generation = lease.generation_};
  return book.ledger_.hand_over(ref, offered_by(me), me);
}

void SlabBook::forget(Lease& lease) noexcept { lease.book_ = nullptr; }

// Whoever got the message may have it already: then it is not being sent any more, and the exchange fails.
void SlabBook::sent(Lease& lease) {
  const auto book = std::exchange(lease.book_, nullptr);
  const LeaseRef ref{.index = lease.index_, .generation = lease.generation_};
  static_cast<void>(book->ledger_.hand_over(ref, sending_by(book->object_.self()), kInTransit));
}

void SlabBook::hand_back(Lease& lease) {
  const auto book = std::exchange(lease.book_, nullptr);
  const LeaseRef ref{.index = lease.index_, .generation = lease.generation_};
  static_cast<void>(book->ledger_.hand_over(ref, book->object_.self(), kInTransit));
}

Lease SlabBook::receive(const std::shared_ptr<Membership>& membership, const SentLease& sent) {
  const auto book = open(membership, sent.slab);
  book->ledger_.adopt(sent.lease, book->object_.self());
  return book->lease_of(sent.lease);
}

Lease SlabBook::share_kept(const std::shared_ptr<Membership>& membership, const SentLease& kept) {
  const auto book = open(membership, kept.slab);
  return book->lease_of(book->ledger_.share(kept.lease, book->object_.self(), *membership));
}

void SlabBook::end_sent(const std::shared_ptr<Membership>& membership, const SentLease& sent) noexcept {
  try {
    receive(membership, sent).release();
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

}  // namespace drover
