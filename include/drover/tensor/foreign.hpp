// drover/tensor/foreign.hpp: device memory of other libraries as tensors that can be sent.
#pragma once

#include <cstdint>
#include <optional>

#include "drover/tensor/dlpack.hpp"
#include "drover/tensor/tensor.hpp"

namespace drover {

/// How an array of another library became a tensor.
enum class ImportWay : std::uint8_t {
  ipc_handle,  ///< the same memory, which others open by a handle; it dies with this process
  retained,    ///< the same memory, held by the session as well; it survives this process
  copied,      ///< a copy in memory of the session; it survives this process
  own,         ///< the same memory, which is the session's already: a tensor's that was lent, or a SlabAllocator's
};

/// "ipc_handle", "retained", "copied", "own".
[[nodiscard]] const char* to_string(ImportWay way) noexcept;

/// A tensor, and what it is to the array that it was made of.
struct Imported {
  Tensor tensor;                      ///< of the array's elements
  ImportWay way = ImportWay::copied;  ///< whether both have the same memory
};

/// How an array is imported.
struct ImportOptions {
  /// The stream on which the array's library works on it, as it knows it (Device::borrow_stream): what is done with
  /// the tensor comes after all that this was given. Without it the array must be ready. Only for arrays on a device.
  std::optional<std::uintptr_t> stream;
  /// Whether the tensor may have the memory of the array; else it is a copy.
  bool may_share = true;
};

/// Makes a tensor of an array of another library, at the same place, for use here and to be sent. Without a copy
/// where the memory allows it: `own` for what is known by its address; else as Device::describe tells, `retained` for
/// virtual memory that can be exported, `ipc_handle` for plain allocations. `copied` is the rest: host memory, pools,
/// managed memory, several mapped pieces, elements that do not lie at multiples of their size from the begin of the
/// allocation. Reports its way in the trace, as "tensor.import.copied".
///
/// Of an array that is `own` the tensor has a share, and the keeper is let go at once. Else it is held until nobody
/// in the session has a lease on its allocation, or the copy is done: that is looked at whenever `memory` is used,
/// and when it is trimmed. Keep a Memory until then. Imports of one allocation share a slab, and their keepers go
/// together. When they go, no mutex is held, and any thread that uses `memory` may be it.
///
/// A tensor has no word for read-only: of an array that is, do not write to a tensor that is not `copied`. After the
/// process of an `ipc_handle` has died, who opens it gets `Errc::peer_lost`.
///
/// Does not wait for the stream, except for the copy of host memory. Throws `Errc::invalid_argument` if there is no
/// such memory on the array's device, or no such stream, and as `Memory::allocate`.
[[nodiscard]] Imported import_tensor(const Memory& memory, const DlpackArray& array,
                                     const ImportOptions& options = {});

/// What import_tensor makes of an array that is `own`; nothing of any other. For arrays of which nothing is known but
/// an address: no driver is asked what lies there, and no keeper is needed.
[[nodiscard]] std::optional<Tensor> find_tensor(const Memory& memory, const DlpackArray& array,
                                                const std::optional<std::uintptr_t>& stream);

}  // namespace drover
