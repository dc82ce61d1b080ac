// pool/run/wire.hpp: messages between an application and the workers of its pool.
//
// To a worker: a BatchHeader, and for each task a TaskHeader, its arguments and a record of its tensors if it has
// any, each aligned to 8 bytes. Their leases go with the message, in the same order. From a worker: a ResultHeader
// and what belongs to its kind. Both sides are the same program, but readers still validate: `Errc::corrupt`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "drover/ipc/lease.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/tensor/memory.hpp"
#include "drover/tensor/tensor.hpp"

namespace drover::pool {

/// The beginning of a message to a worker.
struct BatchHeader {
  std::uint32_t sequence = 0;  ///< of the batches of a worker; from 1
  std::uint32_t count = 0;     ///< tasks that follow
};

/// The beginning of a task.
struct TaskHeader {
  std::uint64_t number = 0;     ///< TaskCall::number
  std::uint32_t task = 0;       ///< RegisteredTask::index
  std::uint32_t bytes = 0;      ///< size of its arguments
  std::uint32_t tensors = 0;    ///< number of tensors in the record after those
  std::uint32_t relocates = 0;  ///< whether to copy device tensors to the worker's device first
};

/// The kind of a message from a worker.
enum class ResultKind : std::uint16_t {
  ready = 1,  ///< the worker is initialised and waits for tasks
  value,      ///< a result follows
  failure,    ///< an exception follows, as `write_failure` encodes it
  unmoved,    ///< the tensors of a task could not be copied to the worker's device; it has not begun
  death,      ///< put by the application itself, behind all messages of a dead worker
};

/// The beginning of a message from a worker.
struct ResultHeader {
  std::uint64_t number = 0;             ///< of the task
  std::uint64_t nanoseconds = 0;        ///< run time of the task
  std::uint32_t bytes = 0;              ///< size of the result
  std::uint32_t starts = 0;             ///< BoardWorker::starts of the process, to ignore messages of earlier ones
  std::uint32_t tensors = 0;            ///< number of tensors in the record after it
  std::uint16_t slot = 0;               ///< index of the worker
  ResultKind kind = ResultKind::value;  ///< what follows
  std::uint64_t leaves = 0;             ///< whether the worker exits after this
};

static_assert(std::is_trivially_copyable_v<BatchHeader> && std::is_trivially_copyable_v<TaskHeader> &&
              std::is_trivially_copyable_v<ResultHeader>);

/// Writes messages one after the other in the same memory.
class WireWriter {
 public:
  /// Begins a message.
  void clear() noexcept;
  /// Appends a header.
  template <class Header>
  std::size_t add(const Header& header) {
    return append(std::as_bytes(std::span(&header, 1)));
  }
  /// Overwrites an appended header.
  template <class Header>
  void set(std::size_t at, const Header& header) {
    std::memcpy(bytes_.data() + at, &header, sizeof(header));
  }
  /// Appends bytes, padded to a multiple of 8. Returns their offset.
  std::size_t append(std::span<const std::byte> bytes);
  /// Appends a record of tensors and their leases; nothing if there are none, or if it throws. Throws as `pack_all`.
  void append(std::span<const Tensor> tensors);

  /// Truncates to `bytes`. Requires: no leases were appended since.
  void cut(std::size_t bytes) { bytes_.resize(bytes); }

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::span<Lease> leases() noexcept { return leases_; }

 private:
  std::vector<std::byte> bytes_;
  std::vector<Lease> leases_;
};

/// Reads a message from its beginning.
class WireReader {
 public:
  /// Requires: the message outlives this.
  explicit WireReader(Message& message) : rest_(message.bytes()), leases_(message.take_leases()) {}

  /// Copies the first header of a message without consuming it.
  template <class Header>
  [[nodiscard]] static Header peek(const Message& message) {
    return WireReader(message.bytes()).header<Header>();
  }
  /// Reads the next header.
  template <class Header>
  [[nodiscard]] Header header() {
    Header header;
    std::memcpy(&header, bytes(sizeof(header)).data(), sizeof(header));
    return header;
  }
  /// Reads `count` bytes and skips their padding.
  [[nodiscard]] std::span<const std::byte> bytes(std::size_t count);
  /// Reads `count` tensors with their leases. Throws as `unpack_all`, and then releases all their leases.
  [[nodiscard]] std::vector<Tensor> tensors(std::size_t count, const Memory& memory);

 private:
  explicit WireReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  std::span<const std::byte> rest_;
  std::vector<Lease> leases_;
  std::size_t next_lease_ = 0;
};

}  // namespace drover::pool
