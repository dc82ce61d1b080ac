// tensor/memory/tensor_storage.hpp: the memory of tensors, and the work in flight on it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/mutex.hpp"
#include "drover/tensor/memory.hpp"
#include "tensor/memory/device_work.hpp"
#include "tensor/memory/foreign_memory.hpp"

namespace drover::tensor {

class MemoryState;

/// The points of work, each asked for once on behalf of many storages; nullopt for work that is done.
using KnownPoints = std::map<std::pair<const DeviceWork*, std::uint64_t>, std::optional<ipc::TimelinePoint>>;

/// One block, shared by all tensors of this process that are views of it. Tracks what must be done before its
/// contents can be used: the points of other processes that it came with, and the work this process has submitted.
/// Releases the block when all work on it has ended. Safe for all threads.
class TensorStorage {
 public:
  /// New memory.
  TensorStorage(Memory memory, const Place& place, std::uint64_t bytes);
  /// Memory that came in a message, ready at these points.
  TensorStorage(Memory memory, Lease&& lease, std::vector<ipc::TimelinePoint> origins);
  /// Memory of another library; see MemoryState::import_memory.
  TensorStorage(Memory memory, const ForeignMemory& foreign, const KeptBytes& kept);
  /// Shared memory of another library; see MemoryState::import_file.
  TensorStorage(Memory memory, const Fd& file, std::uint64_t bytes);
  /// An array of `bytes` in the block of `whole`, which another library divides itself: holds `keep_alive` until no
  /// process has a lease of this storage any more.
  TensorStorage(TensorStorage& whole, std::uint64_t bytes, std::shared_ptr<void> keep_alive);
  /// Those of the points of a message that are not reached yet. Throws `Errc::corrupt` if one is invalid,
  /// `Errc::peer_lost` if one is lost.
  [[nodiscard]] static std::vector<ipc::TimelinePoint> pending(const Memory& memory,
                                                               std::span<const ipc::TimelinePoint> points);
  ~TensorStorage();
  TensorStorage(const TensorStorage&) = delete;
  TensorStorage& operator=(const TensorStorage&) = delete;

  [[nodiscard]] const Block& block() const noexcept { return block_; }
  [[nodiscard]] Place place() const { return block_.place(); }
  [[nodiscard]] Memory memory() const { return memory_; }
  /// The work of this process on a device.
  [[nodiscard]] std::shared_ptr<DeviceWork> work_at(const Place& place) const;
  /// Whether the memory dies with the process whose library allocated it.
  [[nodiscard]] bool dies_with_its_process() const noexcept;
  /// Copies bytes to idle host memory, from `offset` on. Throws as `MappedSlab::write`.
  void write(std::uint64_t offset, std::span<const std::byte> bytes) const;
  /// See MappedSlab::register_with.
  bool register_with(Device& device) const;

  /// Orders what `work` submits later after all work in flight here. Throws `Errc::peer_lost` if the contents are
  /// known to be lost.
  void begin_use(DeviceWork& work) DROVER_EXCLUDES(mutex_);
  /// Records that the work with this ticket uses the block.
  void end_use(const WorkTicket& use) DROVER_EXCLUDES(mutex_);
  /// Records that the default stream of this work's device uses the block for all that it is given until the storage
  /// is used again, or its block released. One event then serves all blocks that are released together.
  void end_use_later(std::shared_ptr<DeviceWork> work) DROVER_EXCLUDES(mutex_);
  /// Records that the contents also come from `source`: they are ready only when `source` is, and lost if it is.
  /// Requires: the same session, or no work in flight on `source`.
  void derive_from(TensorStorage& source) DROVER_EXCLUDES(mutex_);

  /// What another library holds of the storage to use it on a stream: that of an earlier call if it is still held,
  /// and no work was added since, otherwise the result of `make`.
  [[nodiscard]] std::shared_ptr<void> exported(std::intptr_t stream,
                                               const std::function<std::shared_ptr<void>()>& make)
      DROVER_EXCLUDES(mutex_);

  /// Holds `keep_alive` until everything that was submitted so far has ended.
  void hold(std::shared_ptr<void> keep_alive) DROVER_EXCLUDES(mutex_);

  /// Waits until no work is in flight. Throws `Errc::peer_lost` if the contents are lost.
  WaitResult wait(Deadline deadline) DROVER_EXCLUDES(mutex_);
  /// Whether no work is in flight. Throws as `wait`.
  [[nodiscard]] bool is_ready() DROVER_EXCLUDES(mutex_);
  /// The points at which the contents are complete, for other processes. Waits, and returns none, if there are more
  /// than `most`. Throws as `wait`.
  [[nodiscard]] std::vector<ipc::TimelinePoint> points(std::size_t most, KnownPoints& known) DROVER_EXCLUDES(mutex_);

 private:
  void note_pending() DROVER_REQUIRES(mutex_) {
    has_pending_ = !origins_.empty() || !uses_.empty() || late_ != nullptr;
  }
  void add(const WorkTicket& use) DROVER_REQUIRES(mutex_);
  [[nodiscard]] std::vector<WorkTicket> uses() DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<ipc::TimelinePoint> origins() DROVER_EXCLUDES(mutex_);

  // Orders a stream after the work of the storage, once for all arrays of the same block.
  struct Export {
    std::weak_ptr<void> keep_alive;
    std::intptr_t stream = 0;
    std::uint64_t changes = 0;
  };

  const Memory memory_;
  Block block_;
  mutable Mutex mutex_;
  Export export_ DROVER_GUARDED_BY(mutex_);              // the latest
  std::uint64_t changes_ DROVER_GUARDED_BY(mutex_) = 0;  // of the work and origins below
  std::atomic<bool> has_pending_{false};                 // whether there is anything below; read without the mutex
  std::vector<ipc::TimelinePoint> origins_ DROVER_GUARDED_BY(mutex_);  // of other processes, not known to be reached
  std::vector<WorkTicket> uses_ DROVER_GUARDED_BY(mutex_);             // the latest ticket of each work
  std::shared_ptr<DeviceWork> late_ DROVER_GUARDED_BY(mutex_);         // see end_use_later
};

}  // namespace drover::tensor
