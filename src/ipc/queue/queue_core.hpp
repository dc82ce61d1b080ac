// ipc/queue/queue_core.hpp: one process's opening of a queue, shared by its handles and messages.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/mutex.hpp"
#include "drover/ipc/membership.hpp"
#include "drover/ipc/queue.hpp"
#include "ipc/ledger/sent_lease.hpp"
#include "ipc/queue/queue_layout.hpp"
#include "ipc/queue/queue_peers.hpp"
#include "ipc/queue/ring.hpp"
#include "ipc/queue/slot_pages.hpp"
#include "ipc/wake/bell.hpp"
#include "ipc/wake/bridge.hpp"

namespace drover::ipc {

/// A slot claimed by a producer, or why there is none.
struct ClaimedSlot {
  Position position = 0;
  PutResult result = PutResult::timed_out;
  explicit operator bool() const noexcept { return result != PutResult::timed_out; }
};

/// A record claimed by a consumer, or why there is none.
struct TakenRecord {
  RecordHead head;  ///< read once and checked, because it decides how much is copied
  RecordPlace place;
  bool is_redelivered = false;
  bool is_taken = false;
  GetResult end = GetResult::timed_out;
  explicit operator bool() const noexcept { return is_taken || end != GetResult::timed_out; }
};

/// The work behind Queue, Message, Delivery and Loan. Safe for all threads of the process.
class QueueCore : public std::enable_shared_from_this<QueueCore> {
 public:
  explicit QueueCore(SharedObject object);

  PutResult put(std::span<const std::byte> message, std::span<Lease> leases, Deadline deadline);
  PutResult publish(Loan& loan, Deadline deadline);
  GetResult get(Message& into, Deadline deadline);
  GetResult receive(Delivery& into, Deadline deadline);
  Loan loan(std::size_t bytes, Deadline deadline);

  void done(Delivery& delivery);
  void give_back(Delivery& delivery);
  void free(detail::HeldMemory& held) noexcept;

  void close();
  [[nodiscard]] const SharedObject& object() const noexcept { return object_; }
  [[nodiscard]] const QueueView& view() const noexcept { return view_; }
  [[nodiscard]] QueuePeers& peers() noexcept { return peers_; }
  /// Whether a get would end at once, with a message or because none can come.
  [[nodiscard]] bool is_readable() noexcept;
  /// A descriptor for event loops: Queue::fd.
  [[nodiscard]] int fd() DROVER_EXCLUDES(watch_mutex_);

 private:
  [[nodiscard]] ClaimedSlot try_claim(Owner me);
  [[nodiscard]] ClaimedSlot claim(Owner me, Deadline deadline);
  void publish_record(Position position, Owner me);
  [[nodiscard]] PutResult put_held(detail::HeldMemory& held, const SendableLeases& leases, Owner me,
                                   Deadline deadline);
  [[nodiscard]] detail::HeldMemory allocate_for(std::size_t bytes, const SendableLeases& leases, Owner me,
                                                Deadline deadline, PutResult& result);
  [[nodiscard]] detail::HeldMemory allocate(std::size_t bytes, Owner me, Deadline deadline, PutResult& result);
  [[nodiscard]] detail::HeldMemory try_allocate(std::size_t bytes, Owner me, Deadline deadline);

  [[nodiscard]] bool has_returned() noexcept;
  [[nodiscard]] bool try_take_returned(Owner me, TakenRecord& taken);
  [[nodiscard]] bool try_take_now(Owner me, TakenRecord& taken, ReadScan& scan);
  [[nodiscard]] TakenRecord try_take(Owner me);
  [[nodiscard]] TakenRecord take(Owner me, Deadline deadline);
  template <class Work>
  void use_taken(const TakenRecord& taken, Owner me, std::vector<Lease>& leases, Work work);
  [[nodiscard]] detail::HeldMemory adopt(const TakenRecord& taken, Owner me);
  void finish(RecordPlace place, Owner me);
  void put_back(RecordPlace place, Owner me);

  SharedObject object_;
  QueueView view_;
  QueuePeers peers_;
  SlotPages pages_;
  RingCursors cursors_;
  Patience put_patience_{false};  // a producer that takes each slot as it is freed contends with the consumer for it
  Patience get_patience_;
  Patience bytes_patience_ = Patience::none();  // each attempt would take the pool's lock
  Mutex watch_mutex_;
  std::unique_ptr<Bridge::Watch> watch_ DROVER_GUARDED_BY(watch_mutex_);
  std::atomic<bool> is_watched_{false};
};

}  // namespace drover::ipc
