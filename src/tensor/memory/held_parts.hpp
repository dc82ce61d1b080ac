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
  /// A lease on the block of `whole` for a new part of it, of `bytes` bytes. Holds `keep_alive` until no process and
  /// no message has a lease for this part any more. Throws as `Lease::share`.
  [[nodiscard]] Lease hold(const Lease& whole, std::uint64_t bytes, std::shared_ptr<void> keep_alive)
      DROVER_EXCLUDES(mutex_);
  /// Removes what no process uses any more, for the caller to release: that runs code of the other library.
  [[nodiscard]] std::vector<std::shared_ptr<void>> take_unused() DROVER_EXCLUDES(mutex_);
  /// Whether so many bytes were held since the last `take_unused` that it is worth its time: without it, a program
  /// that makes and sends arrays in a loop would need memory for all arrays of a period of the poller.
  [[nodiscard]] bool are_due() const noexcept { return bytes_ >= due_at_; }
  /// Whether anything is held.
  [[nodiscard]] bool has_any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }

 private:
  using Name = std::pair<std::uint64_t, std::uint64_t>;  // of a block: the generation of its slab, and its offset
  struct Part {
    std::shared_ptr<void> keep_alive;
    std::uint64_t bytes;
  };
  struct Divided {
    Lease anchor;  // keeps the block while there are parts of it
    std::map<std::uint32_t, Part> parts;
  };
  static constexpr std::uint64_t kFirstDue = std::uint64_t{16} << 20U;

  Mutex mutex_;
  std::map<Name, Divided> blocks_ DROVER_GUARDED_BY(mutex_);  // none is without parts
  std::atomic<std::size_t> count_{0};                         // of all parts
  std::atomic<std::uint64_t> bytes_{0};                       // of all parts
  std::atomic<std::uint64_t> due_at_{kFirstDue};              // twice the bytes after the last check, and some
};

}  // namespace drover::tensor
