// drover/ipc/pipe.hpp: a two-way connection for messages.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"
#include "drover/ipc/queue.hpp"

namespace drover {

/// The name of one end of a pipe, valid in every process of the session.
struct PipeHandle {
  ObjectHandle incoming;  ///< the queue that this end reads
  ObjectHandle outgoing;  ///< the queue that it writes

  /// A text without spaces, for an argument of a worker.
  [[nodiscard]] std::string to_string() const;
  /// Parses such a text; throws `Errc::invalid_argument` for any other.
  [[nodiscard]] static PipeHandle parse(std::string_view text);
};

/// How a pipe is made.
struct PipeOptions {
  std::uint64_t capacity = 256;                    ///< messages in flight, in each direction
  std::uint64_t bytes = std::uint64_t{16} << 20U;  ///< memory for messages over 1 KiB, in each direction
};

/// One end of a two-way pipe between processes or threads. Each end receives in order what the other sends. When
/// every process that had the other end is gone, or its last copy in this process is destroyed, pending messages are
/// received first, and then both directions report `peer_lost`. An end may be open in several processes; each message
/// goes to one of them. Move-only; all threads may use one.
class Pipe {
 public:
  /// Makes both ends. Send the handle of one to another process, and destroy your copy once that process has opened
  /// it.
  [[nodiscard]] static std::pair<Pipe, Pipe> make(const std::shared_ptr<Membership>& membership,
                                                  const PipeOptions& options = {});
  /// Opens an end.
  Pipe(const std::shared_ptr<Membership>& membership, const PipeHandle& handle);
  /// Takes over the end.
  Pipe(Pipe&&) noexcept = default;
  /// Closes what was open, then takes over the end.
  Pipe& operator=(Pipe&&) noexcept = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() = default;

  /// The name of this end.
  [[nodiscard]] PipeHandle handle() const;
  /// Sends a copy of `message`; waits for room. `peer_lost` at once when nobody can receive it.
  PutResult send(std::span<const std::byte> message, Deadline deadline = Deadline::never());
  /// The same for text.
  PutResult send(std::string_view message, Deadline deadline = Deadline::never());
  /// The same with leases: Queue::put.
  PutResult send(std::span<const std::byte> message, std::span<Lease> leases, Deadline deadline = Deadline::never());
  /// Waits for a message from the other end.
  GetResult receive(Message& into, Deadline deadline = Deadline::never());
  /// For event loops: see Queue::fd.
  [[nodiscard]] int fd() { return incoming_.fd(); }

 private:
  friend class WaitSource;
  struct End;
  Pipe(Queue incoming, Queue outgoing);

  Queue incoming_;
  Queue outgoing_;
  std::shared_ptr<End> end_;  // shared: with the rule by which the queues learn that the other end is gone
};

}  // namespace drover
