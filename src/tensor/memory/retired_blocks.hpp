// tensor/memory/retired_blocks.hpp: blocks that wait for the end of work that uses them.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "drover/base/mutex.hpp"
#include "drover/ipc/lease.hpp"
#include "tensor/memory/device_work.hpp"
#include "tensor/memory/mapped_slab.hpp"

namespace drover::tensor {

/// A block that this process has released, but that submitted work still uses.
struct RetiredBlock {
  std::shared_ptr<void> keep_alive;  ///< of other memory that the work uses
  Lease lease;
  std::shared_ptr<MappedSlab> slab;
  std::vector<WorkTicket> uses;
  std::shared_ptr<DeviceWork> late;  ///< whose device's default stream uses it, too; see TensorStorage::end_use_later
};

/// The retired blocks of one Memory. Safe for all threads.
class RetiredBlocks {
 public:
  explicit RetiredBlocks(std::shared_ptr<Membership> membership) : membership_(std::move(membership)) {}
  /// Waits until all uses have ended. A forked child leaks the blocks.
  ~RetiredBlocks();
  RetiredBlocks(const RetiredBlocks&) = delete;
  RetiredBlocks& operator=(const RetiredBlocks&) = delete;

  /// Holds a block until its uses have ended.
  void add(RetiredBlock block) DROVER_EXCLUDES(mutex_);
  /// Whether there are any, those being checked by another thread included.
  [[nodiscard]] bool has_any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }
  /// Calls `release` for those whose uses have ended, or end until the deadline, then lets go of their `keep_alive`,
  /// without a mutex. Does nothing if another thread is checking them, unless it may wait.
  void release_ended(Deadline patience, const std::function<void(RetiredBlock&)>& release) DROVER_EXCLUDES(mutex_);

 private:
  struct Sorted {
    std::vector<RetiredBlock> ended;
    std::vector<RetiredBlock> pending;
  };
  [[nodiscard]] static Sorted sort_out(std::vector<RetiredBlock> blocks, Deadline patience);
  void put_back(std::vector<RetiredBlock> blocks) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<RetiredBlock> take_all() DROVER_EXCLUDES(mutex_);

  const std::shared_ptr<Membership> membership_;
  std::mutex
      checking_;  // acquired before mutex_: one thread at a time checks blocks, so none misses what another holds
  Mutex mutex_;
  std::vector<RetiredBlock> blocks_ DROVER_GUARDED_BY(mutex_);
  std::atomic<std::size_t> count_{0};
};

}  // namespace drover::tensor
