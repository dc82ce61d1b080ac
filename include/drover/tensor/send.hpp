// drover/tensor/send.hpp: tensors in queues and pipes, and kept in a session.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/ipc/lease.hpp"
#include "drover/ipc/pipe.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/tensor/tensor.hpp"

namespace drover {

/// Packed tensors: a record of their layouts and of the points at which they are ready, and one lease for each block
/// that they lie in. For messages with several tensors, or with other contents.
struct PackedTensors {
  std::vector<std::byte> record;  ///< part of the message's bytes
  std::vector<Lease> leases;      ///< sent with the message, in this order
};

/// Packs any number of tensors for a message. They stay valid, and both sides share their elements. Does not wait for
/// work in flight on them: the streams of the receiver do. Throws `Errc::peer_lost` if contents are lost,
/// `Errc::invalid_argument` for a tensor without memory.
[[nodiscard]] PackedTensors pack_all(std::span<const Tensor> tensors);
/// Makes the tensors of a record, with the leases that were packed with it. Tensors of one block share a storage.
/// Throws `Errc::corrupt` if the record is invalid or does not fit the memory; `Errc::peer_lost` if the sender died
/// before its work on a tensor was done; and as `Memory::open`. Then leases that are still open stay with the caller.
[[nodiscard]] std::vector<Tensor> unpack_all(const Memory& memory, std::span<const std::byte> record,
                                             std::span<Lease> leases);

/// Sends a tensor without copying it: both sides share its elements. To send a copy, put `tensor.copy()`.
PutResult put(Queue& queue, const Tensor& tensor, Deadline deadline = Deadline::never());
/// Sends a tensor away: after success it has no memory any more, but other views of it do.
PutResult put(Queue& queue, Tensor&& tensor, Deadline deadline = Deadline::never());
/// Receives a tensor. Throws as `unpack_all`, and `Errc::invalid_argument` if the message is not one tensor. If it
/// throws, the message is lost.
GetResult get(Queue& queue, const Memory& memory, Tensor& into, Deadline deadline = Deadline::never());

/// Like `put`, but to the other end of a pipe.
PutResult send(Pipe& pipe, const Tensor& tensor, Deadline deadline = Deadline::never());
/// The same, but sends it away.
PutResult send(Pipe& pipe, Tensor&& tensor, Deadline deadline = Deadline::never());
/// Like `get`, but from the other end of a pipe.
GetResult receive(Pipe& pipe, const Memory& memory, Tensor& into, Deadline deadline = Deadline::never());

/// Keeps a tensor in the session under a name, which it replaces, until it is dropped (`Session::drop`) or the
/// session ends; it survives this process. Shares the elements, and waits until they are ready. `Session::kept` and
/// `drover session show` list what is kept. Throws as `Tensor::synchronize` and `Membership::keep`, and
/// `Errc::unsupported` for memory of another library that was imported by its handle.
void keep(std::string_view name, const Tensor& tensor);

/// Keeps any number of tensors together under a name, as `keep` does one: all of them are kept, or none, and a
/// process that recalls them while they are replaced gets all old or all new ones. Throws as `keep`,
/// `Errc::invalid_argument` if there are none, and `Errc::limit_reached` if they lie in `kMostKeptLeases` blocks or
/// more.
void keep_all(std::string_view name, std::span<const Tensor> tensors);

/// A kept tensor, which stays kept; copies nothing. Throws `Errc::not_found`, with kept names, if there is none;
/// `Errc::invalid_argument` if the kept object is not a tensor; and as `Memory::open`.
[[nodiscard]] Tensor recall(const Memory& memory, std::string_view name);
/// The tensors of `keep_all`, or the one of `keep`. Tensors of one block share a storage. Throws as `recall`.
[[nodiscard]] std::vector<Tensor> recall_all(const Memory& memory, std::string_view name);

}  // namespace drover
