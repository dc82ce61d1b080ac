// tensor/memory/deferred_releases.hpp: the end of what other libraries do with tensors on their streams.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/mutex.hpp"
#include "drover/device/stream.hpp"
#include "drover/tensor/tensor.hpp"

namespace drover::tensor {

/// Releases tensors that other libraries used on streams; deferred while a stream captures a graph, since only
/// afterwards can it be asked what it did before. Of tensors that a default stream used, and that are released right
/// after each other, as when a structure is destroyed, only the first one asks the stream at once; none does while a
/// stream that waits for it captures a graph. One per process. Safe for all threads; not for forked children.
class DeferredReleases {
 public:
  [[nodiscard]] static DeferredReleases& instance();

  /// Releases a tensor when what `stream` was given is done, but not before its capture ends. Requires: the library
  /// does not destroy the stream before.
  void release(const Tensor& tensor, std::shared_ptr<Stream> stream) noexcept DROVER_EXCLUDES(mutex_);
  /// Releases those whose captures have ended. Costs almost nothing if there are none.
  void retry() noexcept DROVER_EXCLUDES(mutex_);

 private:
  struct Use {
    Tensor tensor;
    std::shared_ptr<Stream> stream;
  };
  void release_in_burst(const Tensor& tensor, Stream& stream) noexcept;
  [[nodiscard]] std::vector<Use> take_all() DROVER_EXCLUDES(mutex_);

  Mutex mutex_;
  std::vector<Use> uses_ DROVER_GUARDED_BY(mutex_);
  std::atomic<bool> has_any_{false};
  std::atomic<Clock::time_point> last_{Clock::time_point()};  // when a tensor of a default stream was released
};

}  // namespace drover::tensor
