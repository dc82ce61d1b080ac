// tensor/exchange/dlpack_types.hpp: types of elements, as DLPack says them; private.
#pragma once

#include "drover/tensor/dlpack.hpp"

namespace drover::detail {

/// The type of elements as other libraries see it.
[[nodiscard]] dlpack::DLDataType dlpack_type(DType dtype);

/// The type of another library's elements; `Errc::unsupported`, which names it, where there is none.
[[nodiscard]] DType dtype_from(const dlpack::DLDataType& type);

}  // namespace drover::detail
