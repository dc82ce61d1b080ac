// python/bindings/shared_regions.hpp: host memory of tensors that other objects of this process look at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "drover/base/mutex.hpp"
#include "drover/tensor/tensor.hpp"

namespace drover::python {

/// Which addresses belong to which tensor, while a buffer of it is in use: an array that lies in one is sent as a
/// part of that tensor instead of being copied. Only tensors of bytes in one dimension are remembered. Safe for all
/// threads.
class SharedRegions {
 public:
  [[nodiscard]] static SharedRegions& instance();

  /// A buffer of it is in use from now on; to be followed by `remove` of the same address.
  void add(const std::byte* begin, const Tensor& tensor) DROVER_EXCLUDES(mutex_);
  void remove(const std::byte* begin) DROVER_EXCLUDES(mutex_);
  /// The part of a tensor that lies there, whole; nothing if none does.
  [[nodiscard]] std::optional<Tensor> find(const std::byte* begin, std::size_t bytes) DROVER_EXCLUDES(mutex_);

 private:
  struct Region {
    Tensor tensor;
    std::size_t uses = 0;
  };
  Mutex mutex_;
  std::map<const std::byte*, Region> regions_ DROVER_GUARDED_BY(mutex_);
  std::size_t longest_ DROVER_GUARDED_BY(mutex_) = 0;  // of all regions that ever were: how far back one may begin
};

}  // namespace drover::python
