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

namespace drover {

/// How a queue is made.
struct QueueOptions {
  std::uint64_t capacity = 1024;                   ///< messages it holds at most
  std::uint64_t bytes = std::uint64_t{64} << 20U;  ///< memory for messages over 1 KiB; used only as touched
  std::uint64_t in_flight = 64;                    ///< deliveries that may be worked on without filling the ring
  bool waits_alone = false;                        ///< whether waits go on when nobody else is left; for a service
};

/// A bounded queue of byte messages between processes and threads, many to many, first in first out. Any process may
/// be killed at any instruction: what was put is delivered, what was half put never existed, what a dead consumer
/// held is delivered again. `docs/crash_tables.md` has the details.
///
/// A handle: copies refer to the same queue, and all threads may use one. Waits end by data, by the deadline, by
/// `close`, or when no peer is left; if the session is over they throw `Errc::peer_lost`. No peer is left when others
/// had the queue and none has it now: everybody who is present had it open and closed it, nobody is starting, and no
/// other thread of this process does the other half. Whoever joins and opens it later is served as before.
class Queue {
 public:
  /// Makes a queue.
  explicit Queue(std::shared_ptr<Membership> membership, const QueueOptions& options = {});
  /// Opens one that another participant made.
  Queue(std::shared_ptr<Membership> membership, const ObjectHandle& handle);

  /// By this name others open it.
  [[nodiscard]] const ObjectHandle& handle() const;

  /// Puts a copy of `message`; waits for room until the deadline.
  PutResult put(std::span<const std::byte> message, Deadline deadline = Deadline::never());
  /// The same for text.
  PutResult put(std::string_view message, Deadline deadline = Deadline::never());
  /// Puts a copy of `message` together with leases, at most 32: from then on they belong to the message, and then to
  /// whoever gets it; those in `leases` are empty. Whatever else the result, they are unchanged. Throws
  /// `Errc::invalid_argument` for one that is empty or of another session.
  PutResult put(std::span<const std::byte> message, std::span<Lease> leases, Deadline deadline = Deadline::never());
  /// Puts if there is room now.
  PutResult try_put(std::span<const std::byte> message) { return put(message, Deadline::after({})); }
  /// Puts one after the other until all are in or one fails; returns how many are in, and the last result.
  PutResult put_many(std::span<const std::span<const std::byte>> messages, std::size_t& count,
                     Deadline deadline = Deadline::never());

  /// Takes the oldest message; waits for one until the deadline. If this process dies before `get` returns, another
  /// gets the message; if it dies afterwards, the message is gone with it (see `receive`).
  GetResult get(Message& into, Deadline deadline = Deadline::never());
  /// Takes a message if there is one now.
  GetResult try_get(Message& into) { return get(into, Deadline::after({})); }
  /// Waits for one message, then takes what else is there, at most `most`. `into` is replaced. Requires: most > 0.
  GetResult get_many(std::vector<Message>& into, std::size_t most, Deadline deadline = Deadline::never());
  /// Takes the oldest message in such a way that it is delivered again unless `Delivery::done` is reached.
  GetResult receive(Delivery& into, Deadline deadline = Deadline::never());

  /// Memory for a message of `bytes`, to be written in place. Waits for room as `put` does; `Loan::result` says why
  /// if it is empty. Requires: bytes > 0.
  [[nodiscard]] Loan loan(std::size_t bytes, Deadline deadline = Deadline::never());
  /// Puts what was written in a loan, without copying; the loan is empty afterwards if it was put.
  PutResult publish(Loan& loan, Deadline deadline = Deadline::never());

  /// A descriptor for poll, epoll and asyncio, owned by the queue: readable when a get may not have to wait. Then
  /// take until a get times out, which makes it unreadable again. Costs a thread of this process, started once.
  [[nodiscard]] int fd();

  /// No more puts, by anybody; gets go on until the queue is drained.
  void close();
  /// Whether somebody closed it.
  [[nodiscard]] bool is_closed() const;
  /// Messages that wait in it, roughly: it changes while it is counted.
  [[nodiscard]] std::uint64_t size() const;
  /// How many it holds at most.
  [[nodiscard]] std::uint64_t capacity() const;

 private:
  friend class Pipe;
  friend class WaitSource;
  [[nodiscard]] QueueCore& core() const;
  std::shared_ptr<QueueCore> core_;  // shared: by copies of the handle and by messages that lie in its memory
};

}  // namespace drover
