// python/bindings/shared_regions.hpp: finds the tensor that a buffer lies in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "drover/base/mutex.hpp"
#include "drover/tensor/tensor.hpp"

namespace drover::python {

/// Maps addresses to host tensors whose buffers are in use: an array that lies in one is sent as a slice of that
/// tensor instead of being copied. Only one-dimensional tensors of bytes are registered. Thread-safe.
class SharedRegions {
 public:
  [[nodiscard]] static SharedRegions& instance();

  /// Registers a buffer of `tensor`. Must be followed by `remove` of the same address.
  void add(const std::byte* begin, const Tensor& tensor) DROVER_EXCLUDES(mutex_);
  void remove(const std::byte* begin) DROVER_EXCLUDES(mutex_);
  /// The slice of a tensor that these bytes are; nullopt if they do not lie in one.
  [[nodiscard]] std::optional<Tensor> find(const std::byte* begin, std::size_t bytes) DROVER_EXCLUDES(mutex_);

 private:
  struct Region {
    Tensor tensor;
    std::size_t uses = 0;
  };
  Mutex mutex_;
  std::map<const std::byte*, Region> regions_ DROVER_GUARDED_BY(mutex_);
  std::size_t longest_ DROVER_GUARDED_BY(mutex_) = 0;  // ever registered: how far back `find` must look
};

}  // namespace drover::python
