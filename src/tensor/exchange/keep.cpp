#include "drover/tensor/keep.hpp"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/ipc/kept.hpp"
#include "drover/tensor/send.hpp"
#include "tensor/tensor_access.hpp"

namespace drover {

// Ready elements need no timeline, whose owner may be gone when they are recalled.
void keep(std::string_view name, const Tensor& tensor) {
  if (TensorAccess::storage(tensor)->dies_with_its_process()) {
    throw Error(Errc::unsupported,
                fmt::format("'{}' cannot be kept: its memory is another library's, and ends with its process", name),
                "keep tensor.copy()");
  }
  tensor.synchronize();
  PackedTensor packed = pack(tensor);
  const auto description = fmt::format("{} at {}", to_string(tensor.layout()), to_string(tensor.place()));
  TensorAccess::membership(tensor.memory())
      .keep(name, packed.record, description.substr(0, kMostKeptDescriptionBytes), std::span(&packed.lease, 1));
}

Tensor recall(const Memory& memory, std::string_view name) {
  Recalled recalled = TensorAccess::membership(memory).recall(name);
  if (recalled.leases.size() != 1 || recalled.record.size() != kTensorRecordBytes) {
    throw Error(Errc::invalid_argument, fmt::format("what is kept under '{}' is not one tensor", name),
                "recall it with Membership::recall, or drop it");
  }
  return unpack(memory, recalled.record, std::move(recalled.leases.front()));
}

}  // namespace drover
