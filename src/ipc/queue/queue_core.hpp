// ipc/queue/queue_core.hpp: one process's opening of a queue, shared by its handles and messages.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "drover/base/clock.hpp"
#include "drover/base/mutex.hpp"
#include "drover/ipc/message.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/ipc/shared_object.hpp"
#include "ipc/queue/queue_layout.hpp"
#include "ipc/queue/queue_use.hpp"
#include "ipc/queue/ring.hpp"
#include "ipc/queue/sendable_leases.hpp"
#include "ipc/wake/bell.hpp"
#include "ipc/wake/bridge.hpp"

namespace drover {

/// The work behind Queue, Message, Delivery and Loan. Safe for all threads of the process.
class QueueCore : public std::enable_shared_from_this<QueueCore> {
 public:
  explicit QueueCore(SharedObject object);

  PutResult put(std::span<const std::byte> message, Deadline deadline) { return put(message, {}, deadline); }
  PutResult put(std::span<const std::byte> message, std::span<Lease> leases, Deadline deadline);
  PutResult publish(Loan& loan, Deadline deadline);
  GetResult get(Message& into, Deadline deadline);
  GetResult receive(Delivery& into, Deadline deadline);
  Loan loan(std::size_t bytes, Deadline deadline);

  void done(Delivery& delivery);
  void give_back(Delivery& delivery);
  void free(detail::HeldMemory& held) noexcept;

  void close();
  [[nodiscard]] bool is_closed() const noexcept { return head().is_closed.load() != 0; }
  /// Records that wait, also those that came back.
  [[nodiscard]] std::uint64_t size() const noexcept;
  [[nodiscard]] const SharedObject& object() const noexcept { return object_; }
  [[nodiscard]] const QueueView& view() const noexcept { return view_; }
  /// Whether a get would end at once, be it with a message or because none can come.
  [[nodiscard]] bool is_readable() noexcept;
  /// What the rule of a pipe says.
  [[nodiscard]] bool is_peer_gone() const { return alone_rule_ && alone_rule_(); }
  /// A descriptor for event loops: Queue::fd.
  [[nodiscard]] int fd();
  /// Replaces the rule by which it is decided that nobody is left at the other end; for pipes. Before first use.
  void set_alone_rule(std::function<bool()> is_alone) { alone_rule_ = std::move(is_alone); }

 private:
  // What a consumer holds before it decides what to do with it. The head is read once, and checked: what it says
  // decides how much is copied.
  struct Taken {
    RecordHead head;
    std::uint64_t place = 0;  // position of the slot, or index of the flight
    bool is_flight = false;
    bool is_redelivered = false;
    bool is_taken = false;
    GetResult end = GetResult::timed_out;
    explicit operator bool() const noexcept { return is_taken || end != GetResult::timed_out; }
  };
  struct Claimed {
    Position position = 0;
    PutResult result = PutResult::timed_out;
    explicit operator bool() const noexcept { return result != PutResult::timed_out; }
  };

  // What a thread that sleeps here is inside of. Only pipes have a rule of their own.
  [[nodiscard]] const char* put_activity() const noexcept { return alone_rule_ ? "pipe.send" : "queue.put"; }
  [[nodiscard]] const char* get_activity() const noexcept { return alone_rule_ ? "pipe.receive" : "queue.get"; }
  [[nodiscard]] RingHead& head() const noexcept { return view_.ring.head(); }
  [[nodiscard]] Claimed try_claim(Owner me);
  [[nodiscard]] PutResult put_held(detail::HeldMemory& held, const SendableLeases& leases, Owner me,
                                   Deadline deadline);
  [[nodiscard]] Claimed claim(Owner me, Deadline deadline);
  void fetch_lines_ahead(Position position, std::size_t bytes) const noexcept;
  void publish_record(Position position, Owner me);
  void pass_room_on() noexcept;

  [[nodiscard]] bool try_take_now(Owner me, Taken& taken, ReadLook& look);
  [[nodiscard]] bool try_take_returned(Owner me, Taken& taken);
  [[nodiscard]] Taken try_take(Owner me);
  [[nodiscard]] Taken take(Owner me, Deadline deadline);
  void take_lines_over(const Taken& taken) const noexcept;
  void finish(const Taken& taken, Owner me);
  void put_back(const Taken& taken, Owner me);
  template <class Work>
  void use_taken(const Taken& taken, Owner me, std::vector<Lease>& leases, Work work);
  void end_record(const Taken& taken, Owner me, std::vector<Lease>& leases);
  void hand_back_record(const Taken& taken, Owner me, std::vector<Lease>& leases);
  void pass_records_on() noexcept;
  void watch_again() DROVER_EXCLUDES(watch_mutex_);
  [[nodiscard]] bool has_overflow() const noexcept;
  [[nodiscard]] bool has_returned() noexcept;
  [[nodiscard]] Record& record_of(const Taken& taken) const noexcept {
    return taken.is_flight ? view_.flights[taken.place].record : view_.ring.slot(taken.place).record;
  }
  [[nodiscard]] std::byte* inlined_of(const Taken& taken) const noexcept {
    return taken.is_flight ? view_.inlined_of_flight(taken.place)
                           : view_.inlined_of_slot(view_.ring.index_of(taken.place));
  }
  [[nodiscard]] MessageKey key_of(const Taken& taken) const noexcept {
    // relaxed: written before the word that was just read
    return taken.is_flight ? view_.flights[taken.place].position.load(std::memory_order_relaxed) : taken.place;
  }
  [[nodiscard]] SentLeaseWords* leases_of(const Taken& taken) const noexcept {
    return taken.is_flight ? view_.leases_of_flight(taken.place)
                           : view_.leases_of_slot(view_.ring.index_of(taken.place));
  }
  void receive_leases(const Taken& taken, std::vector<Lease>& leases) const;
  void keep_in_flight(Taken& taken, Owner me);
  [[nodiscard]] detail::HeldMemory adopt(const Taken& taken, Owner me);
  [[nodiscard]] detail::HeldMemory allocate(std::size_t bytes, Owner me, Deadline deadline, PutResult& result);
  [[nodiscard]] detail::HeldMemory try_allocate(std::size_t bytes, Owner me, Deadline deadline);
  [[nodiscard]] detail::HeldMemory make_overflow(std::size_t bytes);
  [[noreturn]] void fail_corrupt(RecordHead record) const;
  [[nodiscard]] bool is_alone(const Doers& half, const Doers& other_half) const noexcept;

  std::function<bool()> alone_rule_;
  SharedObject object_;
  QueueView view_;
  RingCursors cursors_;
  Patience put_patience_{false};  // who takes each slot as it is freed fights with the consumer for its line
  Patience get_patience_;
  Patience bytes_patience_ = Patience::none();  // each look would take the pool's lock
  std::shared_ptr<QueueUse> use_;               // shared: with other openings of the queue in this process
  Mutex watch_mutex_;
  std::unique_ptr<Bridge::Watch> watch_ DROVER_GUARDED_BY(watch_mutex_);
  std::atomic<bool> is_watched_{false};
};

}  // namespace drover
