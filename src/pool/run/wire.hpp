// pool/run/wire.hpp: what goes between an application and the workers of its pool.
//
// To a worker: a BatchHeader, and for each task a TaskHeader, its arguments and the records of its tensors, each
// beginning at a multiple of 8. Their leases go with the message, in the same order. Back: a ResultHeader with what
// belongs to its kind. Both sides are the same program, yet nothing that came is trusted: `Errc::corrupt`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "drover/ipc/lease.hpp"
#include "drover/ipc/message.hpp"
#include "drover/tensor/memory.hpp"
#include "drover/tensor/tensor.hpp"

namespace drover {

/// The beginning of a message to a worker.
struct BatchHeader {
  std::uint32_t sequence = 0;  ///< of the batches that a worker was sent; from 1
  std::uint32_t count = 0;     ///< tasks that follow
};

/// The beginning of a task.
struct TaskHeader {
  std::uint64_t number = 0;     ///< TaskCall::number
  std::uint32_t task = 0;       ///< RegisteredTask::index
  std::uint32_t bytes = 0;      ///< of its arguments
  std::uint32_t tensors = 0;    ///< how many records follow those
  std::uint32_t relocates = 0;  ///< whether those on devices are copied to the worker's own first
};

/// What a worker says.
enum class ResultKind : std::uint16_t {
  ready = 1,  ///< it has its device and its state, and waits for tasks; the text of a ReadyReport follows
  value,      ///< the result of a task follows
  failure,    ///< what a task threw follows, by an Encoder: RemoteFailure's fields, code, remedy
  unmoved,    ///< the tensors of a task could not be brought to the worker's device: it has not begun
  death,      ///< said by the application to itself, after everything that a dead worker said
};

/// The beginning of a message from a worker.
struct ResultHeader {
  std::uint64_t number = 0;       ///< of the task
  std::uint64_t nanoseconds = 0;  ///< that it ran
  std::uint32_t bytes = 0;        ///< of the result
  std::uint32_t starts = 0;       ///< BoardWorker::starts of the worker: what another process said is of no interest
  std::uint16_t slot = 0;         ///< which worker
  ResultKind kind = ResultKind::value;  ///< what it is
  std::uint16_t tensors = 0;            ///< records that follow
  std::uint16_t leaves = 0;             ///< whether the worker ends after this
};

static_assert(std::is_trivially_copyable_v<BatchHeader> && std::is_trivially_copyable_v<TaskHeader> &&
              std::is_trivially_copyable_v<ResultHeader>);

/// Writes one message after the other, in memory that is used again.
class WireWriter {
 public:
  /// Begins a message.
  void clear() noexcept;
  /// Appends a header.
  template <class Header>
  std::size_t add(const Header& header) {
    return append(std::as_bytes(std::span(&header, 1)));
  }
  /// Sets one that was appended before.
  template <class Header>
  void set(std::size_t at, const Header& header) {
    overwrite(at, std::as_bytes(std::span(&header, 1)));
  }
  /// Appends bytes, and zeros up to a multiple of 8. Returns where they begin.
  std::size_t append(std::span<const std::byte> bytes);
  /// Appends the records of tensors and their leases. Throws as `pack`; then nothing was appended.
  void append(std::span<const Tensor> tensors);

  /// Takes away what was appended since it had so many bytes; leases must not have been appended since.
  void cut(std::size_t bytes) { bytes_.resize(bytes); }

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::span<Lease> leases() noexcept { return leases_; }

 private:
  void overwrite(std::size_t at, std::span<const std::byte> bytes);

  std::vector<std::byte> bytes_;
  std::vector<Lease> leases_;
};

/// Reads a message from its beginning.
class WireReader {
 public:
  /// Requires: the message outlives this.
  explicit WireReader(Message& message) : rest_(message.bytes()), leases_(message.take_leases()) {}

  /// The first header of a message that is read later.
  template <class Header>
  [[nodiscard]] static Header peek(const Message& message) {
    Header header;
    copy_first(message.bytes(), std::as_writable_bytes(std::span(&header, 1)));
    return header;
  }
  /// The next header.
  template <class Header>
  [[nodiscard]] Header header() {
    Header header;
    copy(std::as_writable_bytes(std::span(&header, 1)));
    return header;
  }
  /// So many bytes, and what fills them up.
  [[nodiscard]] std::span<const std::byte> bytes(std::size_t count);
  /// So many tensors, each with its lease. Throws as `unpack`; then all of their leases end.
  [[nodiscard]] std::vector<Tensor> tensors(std::size_t count, const Memory& memory);
  /// Passes over so many without opening them; their leases end.
  void skip_tensors(std::size_t count);

 private:
  static void copy_first(std::span<const std::byte> from, std::span<std::byte> to);
  void copy(std::span<std::byte> to);
  [[nodiscard]] std::vector<Lease> take_leases(std::size_t count);

  std::span<const std::byte> rest_;
  std::vector<Lease> leases_;
  std::size_t next_lease_ = 0;
};

}  // namespace drover
