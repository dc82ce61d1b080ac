// drover/ipc/queue.hpp: a bounded queue between many processes and threads, and its messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "drover/base/checked.hpp"
#include "drover/base/clock.hpp"
#include "drover/ipc/lease.hpp"
#include "drover/ipc/membership.hpp"

namespace drover::ipc {
class QueueCore;
}  // namespace drover::ipc

namespace drover {

/// How a put ended.
enum class [[nodiscard]] PutResult : std::uint8_t {
  put,        ///< it is in the queue and survives the death of its producer
  timed_out,  ///< there was no room until the deadline; nothing has changed
  closed,     ///< the queue was closed; nothing has changed
  peer_lost,  ///< there is no room, and nobody is left to make room
};

/// How a get ended.
enum class [[nodiscard]] GetResult {
  got,        ///< one message was stored
  timed_out,  ///< none arrived until the deadline
  closed,     ///< the queue was closed and is empty; unfinished deliveries of others may still come back
  peer_lost,  ///< it is empty, and nobody is left to put messages
};

/// The names as written above.
[[nodiscard]] std::string_view to_string(PutResult result) noexcept;
/// The names as written above.
[[nodiscard]] std::string_view to_string(GetResult result) noexcept;

/// Identifies a message in its queue: the same number only if the same message is delivered again.
using MessageKey = std::uint64_t;

namespace detail {

/// Memory of a queue that this process holds: a block of its pool, or an overflow object. Move-only.
class HeldMemory {
 public:
  /// Holds nothing.
  HeldMemory() noexcept = default;
  /// Takes over the memory.
  HeldMemory(HeldMemory&& other) noexcept;
  /// Frees its memory, then takes over the other's.
  HeldMemory& operator=(HeldMemory&& other) noexcept;
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;
  ~HeldMemory() { reset(); }

  /// The memory; empty if none is held.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
  /// Frees it now.
  void reset() noexcept {
    if (core_ != nullptr) free();
    data_ = nullptr;
    size_ = 0;
  }

 private:
  friend class drover::ipc::QueueCore;
  void free() noexcept;
  std::shared_ptr<ipc::QueueCore> core_;  // shared: the queue's memory must stay mapped while any message lies in it
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t block_ = 0;
  ObjectHandle overflow_;
  bool is_overflow_ = false;
  bool is_copied_ = false;  // by put, so all of it is read
};

}  // namespace detail

/// A message taken from a queue. Stores up to 104 bytes inline and up to 1 KiB in memory that it reuses; a larger
/// message stays where its producer wrote it, and is freed when the Message is destroyed or reused. Move-only.
class Message {
 public:
  /// Empty.
  Message() noexcept = default;
  /// Takes over the message; the other is empty afterwards.
  Message(Message&& other) noexcept;
  /// Frees its message, then takes over the other, which is empty afterwards.
  Message& operator=(Message&& other) noexcept;
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  ~Message() = default;

  /// The bytes; valid until this Message is changed or destroyed.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept;
  /// The bytes as text.
  [[nodiscard]] std::string_view text() const noexcept;
  /// Its key in the queue.
  [[nodiscard]] MessageKey key() const noexcept { return key_; }
  /// Whether it may have been delivered before, to a participant that died or gave it back.
  [[nodiscard]] bool is_redelivered() const noexcept { return is_redelivered_; }
  /// Its leases, in the order sent; released when this Message is changed or destroyed.
  [[nodiscard]] std::span<const Lease> leases() const noexcept { return leases_; }
  /// Moves the leases out of the message.
  [[nodiscard]] std::vector<Lease> take_leases() noexcept { return std::exchange(leases_, {}); }

 private:
  friend class ipc::QueueCore;
  void reset() noexcept {
    held_.reset();
    leases_.clear();
    size_ = 0;
    key_ = 0;
    is_inlined_ = false;
    is_redelivered_ = false;
  }

  std::array<std::byte, 104> small_{};
  std::vector<std::byte> inlined_;
  detail::HeldMemory held_;
  std::vector<Lease> leases_;
  std::size_t size_ = 0;
  MessageKey key_ = 0;
  bool is_inlined_ = false;
  bool is_redelivered_ = false;
};

/// A message that stays in the queue until it is done: if this process dies first, or drops it, another consumer gets
/// it under the same key. Move-only. Belongs to one thread at a time.
class Delivery {
 public:
  /// Holds nothing.
  Delivery() noexcept = default;
  /// Takes over the delivery.
  Delivery(Delivery&& other) noexcept;
  /// Gives back a message that is not done, then takes over the other.
  Delivery& operator=(Delivery&& other) noexcept;
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;
  /// Gives the message back unless it is done.
  ~Delivery();

  /// The bytes, in the queue's memory; valid until done or given back.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  /// The bytes as text.
  [[nodiscard]] std::string_view text() const noexcept;
  /// Its key in the queue, the same for every delivery of it.
  [[nodiscard]] MessageKey key() const noexcept { return key_; }
  /// Whether it may have been delivered before.
  [[nodiscard]] bool is_redelivered() const noexcept { return is_redelivered_; }
  /// Its leases, in the order sent. They belong to the delivery: share those that outlive it before it is done.
  [[nodiscard]] std::span<const Lease> leases() const noexcept { return leases_; }
  /// Whether it holds a message that is neither done nor given back.
  [[nodiscard]] bool is_open() const noexcept { return core_ != nullptr; }
  /// Removes the message from the queue for good.
  void done();
  /// Returns the message to the other consumers.
  void give_back();

 private:
  friend class ipc::QueueCore;
  void drop() noexcept;

  std::shared_ptr<ipc::QueueCore> core_;  // shared: as in HeldMemory
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  MessageKey key_ = 0;
  std::uint64_t place_ = 0;
  bool is_flight_ = false;
  bool is_redelivered_ = false;
  detail::HeldMemory held_;
  std::vector<Lease> leases_;
};

/// Memory of a queue in which to write a message, so that it is never copied. Publish it with `Queue::publish`;
/// otherwise destruction frees it. Move-only.
class Loan {
 public:
  /// Holds nothing.
  Loan() noexcept = default;
  /// The memory to write. Its initial contents are arbitrary.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return held_.bytes(); }
  /// Whether it holds memory.
  [[nodiscard]] bool is_open() const noexcept { return !held_.bytes().empty(); }
  /// The result of the request; anything but `put` is the reason why it holds nothing.
  [[nodiscard]] PutResult result() const noexcept { return result_; }

 private:
  friend class ipc::QueueCore;
  detail::HeldMemory held_;
  PutResult result_ = PutResult::timed_out;
};

/// Options of a queue.
struct QueueOptions {
  std::uint64_t capacity = 1024;                   ///< most messages
  std::uint64_t bytes = std::uint64_t{64} << 20U;  ///< memory for messages over 1 KiB; allocated when touched
  std::uint64_t in_flight = 64;                    ///< open deliveries that occupy no slot of the ring
  bool waits_alone = false;                        ///< whether waits continue when nobody else is left; for a service
};

/// A bounded FIFO queue of byte messages between many processes and threads. Any process may be killed at any
/// instruction: a message that was put is delivered, a half put message never existed, and a message that a dead
/// consumer held is delivered again. `docs/crash_tables.md` has the details.
///
/// ```
/// #include <drover/drover.hpp>
///
/// #include <cstdio>
/// #include <string>
///
/// int main(int argc, char** argv) {
///   drover::init(argc, argv);
///   const auto session = drover::Session::start();
///   drover::Queue queue(session);
///   if (queue.put("hello") != drover::PutResult::put) return 1;
///   drover::Message message;
///   if (queue.get(message) != drover::GetResult::got) return 1;
///   std::puts(std::string(message.text()).c_str());
/// }
/// ```
///
/// A handle: copies refer to the same queue, and all threads may use one. A wait ends with data, at the deadline, on
/// `close`, or when no peer is left; it throws `Errc::peer_lost` if the session is over. No peer is left when others
/// had the queue open and none has it now: all present participants have closed it, none is starting, and no other
/// thread of this process does the other half. A participant that opens it later is served as before.
class Queue {
 public:
  /// Makes a queue.
  explicit Queue(std::shared_ptr<Membership> membership, const QueueOptions& options = {});
  /// Opens one that another participant made.
  Queue(std::shared_ptr<Membership> membership, const ObjectHandle& handle);

  /// The name by which others open it.
  [[nodiscard]] const ObjectHandle& handle() const;

  /// Puts a copy of `message`; waits for room until the deadline.
  PutResult put(std::span<const std::byte> message, Deadline deadline = Deadline::never());
  /// The same for text.
  PutResult put(std::string_view message, Deadline deadline = Deadline::never());
  /// Puts a copy of `message` with any number of leases, which then belong to the message and later to its receiver;
  /// `leases` are empty afterwards, or unchanged unless the result is `put`. Throws `Errc::invalid_argument` for a
  /// lease that is empty or of another session.
  PutResult put(std::span<const std::byte> message, std::span<Lease> leases, Deadline deadline = Deadline::never());
  /// Puts if there is room now.
  PutResult try_put(std::span<const std::byte> message) { return put(message, Deadline::after({})); }
  /// Puts messages in order until all are in the queue or one fails; `count` is the number put. Returns the last
  /// result.
  PutResult put_many(std::span<const std::span<const std::byte>> messages, std::size_t& count,
                     Deadline deadline = Deadline::never());

  /// Takes the oldest message; waits for one until the deadline. If this process dies before `get` returns, another
  /// consumer gets the message; if it dies later, the message is lost with it (see `receive`).
  GetResult get(Message& into, Deadline deadline = Deadline::never());
  /// Takes a message if there is one now.
  GetResult try_get(Message& into) { return get(into, Deadline::after({})); }
  /// Waits for one message, then takes more without waiting, at most `most` in all. Replaces `into`. Requires: most >
  /// 0.
  GetResult get_many(std::vector<Message>& into, std::size_t most, Deadline deadline = Deadline::never());
  /// Takes the oldest message, which is delivered again unless `Delivery::done` is called.
  GetResult receive(Delivery& into, Deadline deadline = Deadline::never());

  /// Memory in which to write a message of `bytes`. Waits for room as `put` does; `Loan::result` is the reason if it
  /// is empty. Requires: bytes > 0.
  [[nodiscard]] Loan loan(std::size_t bytes, Deadline deadline = Deadline::never());
  /// Puts the message in a loan without copying it; the loan is empty afterwards if the result is `put`.
  PutResult publish(Loan& loan, Deadline deadline = Deadline::never());

  /// A descriptor for poll, epoll and asyncio, owned by the queue: readable when a get may succeed at once. Then get
  /// until one times out, which makes it unreadable again. Starts a thread, once per process.
  [[nodiscard]] int fd();

  /// Refuses further puts by all participants; gets continue until the queue is drained.
  void close();
  /// Whether it was closed.
  [[nodiscard]] bool is_closed() const;
  /// Waiting messages; approximate while others work.
  [[nodiscard]] std::uint64_t size() const;
  /// The most messages it can hold.
  [[nodiscard]] std::uint64_t capacity() const;

 private:
  friend class Pipe;
  friend class WaitSource;
  [[nodiscard]] ipc::QueueCore& core() const { return *core_; }
  detail::Checked<std::shared_ptr<ipc::QueueCore>>
      core_;  // shared: by copies of the handle and by messages that lie in its memory
};

}  // namespace drover
