// drover/ipc/queue.hpp: a bounded queue between many processes and threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"
#include "drover/ipc/message.hpp"

namespace drover::ipc {
class QueueCore;
}  // namespace drover::ipc

namespace drover {

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
  [[nodiscard]] ipc::QueueCore& core() const;
  std::shared_ptr<ipc::QueueCore> core_;  // shared: by copies of the handle and by messages that lie in its memory
};

}  // namespace drover
