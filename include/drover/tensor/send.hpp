// drover/tensor/send.hpp: tensors between processes, through queues and pipes.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "drover/base/clock.hpp"
#include "drover/ipc/lease.hpp"
#include "drover/ipc/pipe.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/tensor/tensor.hpp"

namespace drover {

/// Bytes of a tensor's record, whatever its size.
inline constexpr std::size_t kTensorRecordBytes = 224;

/// A tensor on its way: a record of its form and of when it is ready, and a claim on its memory. What messages with
/// several tensors, or with other things beside them, are made of.
struct PackedTensor {
  std::array<std::byte, kTensorRecordBytes> record;  ///< goes in the message
  Lease lease;                                       ///< goes with the message
};

/// Packs a tensor for a message. The tensor stays as it is, and both sides share its elements. Work on it that is
/// submitted goes on: whoever unpacks it waits for that, on its stream. Throws `Errc::peer_lost` if the contents are
/// lost, `Errc::invalid_argument` for a tensor without memory.
[[nodiscard]] PackedTensor pack(const Tensor& tensor);
/// The tensor of a record and a lease that came with a message. Throws `Errc::corrupt` if the record is none, or does
/// not fit the memory; `Errc::peer_lost` if its sender died before its work on it was done; and as `Memory::open`.
/// Where it throws, the lease is still the caller's.
[[nodiscard]] Tensor unpack(const Memory& memory, std::span<const std::byte> record, Lease&& lease);

/// Sends a tensor without copying it: both sides share its elements from now on. To send a copy, put `tensor.copy()`.
PutResult put(Queue& queue, const Tensor& tensor, Deadline deadline = Deadline::never());
/// Sends it away: after success this tensor has no memory any more, though views of it that are held elsewhere do.
PutResult put(Queue& queue, Tensor&& tensor, Deadline deadline = Deadline::never());
/// Takes a tensor. Throws as `unpack`, and `Errc::invalid_argument` if the message is not one tensor; it is gone
/// then.
GetResult get(Queue& queue, const Memory& memory, Tensor& into, Deadline deadline = Deadline::never());

/// As `put`, to the other end of a pipe.
PutResult send(Pipe& pipe, const Tensor& tensor, Deadline deadline = Deadline::never());
/// The same: sends it away.
PutResult send(Pipe& pipe, Tensor&& tensor, Deadline deadline = Deadline::never());
/// As `get`, from the other end.
GetResult receive(Pipe& pipe, const Memory& memory, Tensor& into, Deadline deadline = Deadline::never());

}  // namespace drover
