// tensor/memory/held_parts.hpp: arrays in blocks that another library divides itself.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "drover/base/mutex.hpp"
#include "drover/ipc/lease.hpp"

namespace drover::tensor {

/// Keeps arrays allocated while others use them: those that another library has made in a block of this process,
/// which it divides itself and reuses piece by piece. Each array that is shared gets leases of its own part of the
/// block, so that it is released as soon as the last of them has ended, whatever else in the block is in use. Safe
/// for all threads.
class HeldParts {
 public:
  /// A lease on the block of `whole` for a new part of it. Holds `keep_alive` until no process and no message has a
  /// lease for this part any more. Throws as `Lease::share`.
  [[nodiscard]] Lease hold(const Lease& whole, std::shared_ptr<void> keep_alive) DROVER_EXCLUDES(mutex_);
  /// Removes what no process uses any more, for the caller to release: that runs code of the other library.
  [[nodiscard]] std::vector<std::shared_ptr<void>> take_unused() DROVER_EXCLUDES(mutex_);
  /// Whether anything is held.
  [[nodiscard]] bool has_any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }

 private:
  using Name = std::pair<std::uint64_t, std::uint64_t>;  // of a block: the generation of its slab, and its offset
  struct Divided {
    Lease anchor;  // keeps the block while there are parts of it
    std::map<std::uint32_t, std::shared_ptr<void>> parts;
  };

  Mutex mutex_;
  std::map<Name, Divided> blocks_ DROVER_GUARDED_BY(mutex_);  // none is without parts
  std::atomic<std::size_t> count_{0};                         // of all parts
};

}  // namespace drover::tensor
