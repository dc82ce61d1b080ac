// tensor/tensor_access.hpp: access to the internals of tensors; private.
#pragma once

#include <initializer_list>
#include <memory>
#include <utility>

#include "drover/tensor/tensor.hpp"
#include "tensor/memory/memory_state.hpp"
#include "tensor/memory/tensor_storage.hpp"

namespace drover::tensor {

/// Access to the internals of Tensor and Memory for the files of this part.
class TensorAccess {
 public:
  [[nodiscard]] static Tensor make(std::shared_ptr<TensorStorage> storage, const TensorLayout& layout) {
    return {std::move(storage), layout};
  }
  /// The storage; throws `Errc::invalid_argument` for a tensor without memory.
  [[nodiscard]] static const std::shared_ptr<TensorStorage>& storage(const Tensor& tensor) {
    require(tensor.storage_ != nullptr, "the tensor has no memory",
            "make one with empty, zeros or arange, or get one from a queue");
    return tensor.storage_;
  }
  /// The session of a memory.
  [[nodiscard]] static Membership& membership(const Memory& memory) { return *memory.state_->membership(); }
  /// Releases the blocks whose work has ended.
  static void release_retired(const Memory& memory) { memory.state_->release_retired(Deadline::after({})); }
  /// The first `bytes` of a file in which another library has shared memory, as numbers of type uint8. The memory
  /// stays shared with that library, and lasts as long as any process or message has the tensor.
  [[nodiscard]] static Tensor of_file(const Memory& memory, const Fd& file, std::int64_t bytes) {
    return {std::make_shared<TensorStorage>(memory, file, bytes), TensorLayout::contiguous(DType::uint8, {bytes})};
  }
  /// New memory for a tensor of this layout, which is contiguous.
  [[nodiscard]] static Tensor make_like(const Memory& memory, const TensorLayout& layout, const Place& place) {
    return {std::make_shared<TensorStorage>(memory, place, layout.bytes()), layout};
  }
};

/// Submits `task(stream)`, which uses these storages. They count as used even if it throws half way. Requires:
/// `begin_use` for each.
template <class Task>
void submit_use(const std::shared_ptr<DeviceWork>& work, std::initializer_list<TensorStorage*> used, Task&& task) {
  const auto end_uses = [&](std::uint64_t ticket) {
    for (TensorStorage* const storage : used) storage->end_use({.work = work, .ticket = ticket});
  };
  try {
    end_uses(work->submit(std::forward<Task>(task)));
  } catch (...) {
    end_uses(work->latest());
    throw;
  }
}

/// Throws `Errc::invalid_argument` if a stream captures a graph, on which no other process can wait.
void require_not_capturing(const Stream& stream);

/// Copies the elements of one tensor to another, wherever the two lie. Requires: `check_copy`, and elements.
void copy_elements(const Tensor& to, const Tensor& from);

}  // namespace drover::tensor
