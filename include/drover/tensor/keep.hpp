// drover/tensor/keep.hpp: tensors that a session keeps under names.
#pragma once

#include <string_view>

#include "drover/tensor/tensor.hpp"

namespace drover {

/// The session keeps the tensor under a name, whoever dies, until it is dropped (`Session::drop`) or the session
/// ends; what had that name before is replaced. The elements are not copied: who writes them, writes what is kept.
/// Waits until they are ready. `Session::kept` and `drover session show` list what is kept. Throws as
/// `Tensor::synchronize` and `Membership::keep`, and `Errc::unsupported` for memory of another library that was
/// imported by its handle.
void keep(std::string_view name, const Tensor& tensor);

/// A tensor that was kept, with a claim of this process; it stays kept. Takes as long whatever its size. Throws
/// `Errc::not_found`, with names that are kept, if there is none; `Errc::invalid_argument` if what is kept is no
/// tensor; and as `Memory::open`.
[[nodiscard]] Tensor recall(const Memory& memory, std::string_view name);

}  // namespace drover
