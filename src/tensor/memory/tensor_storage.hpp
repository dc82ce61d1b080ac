// tensor/memory/tensor_storage.hpp: the memory of tensors, and the work that is going on there.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/mutex.hpp"
#include "drover/tensor/memory.hpp"
#include "tensor/memory/device_works.hpp"
#include "tensor/memory/foreign_memory.hpp"

namespace drover {

class MemoryState;

/// One block, shared by all tensors of this process that are views of it. Knows what must be done before its contents
/// can be used: the points of other processes that it came with, and what this process has submitted. Safe for all
/// threads. The block is released when all work on it has ended.
class TensorStorage {
 public:
  /// New memory.
  TensorStorage(Memory memory, const Place& place, std::uint64_t bytes);
  /// Memory that came from elsewhere, ready at these points.
  TensorStorage(Memory memory, Lease&& lease, std::vector<TimelinePoint> origins);
  /// Memory of another library; see MemoryState::import_memory.
  TensorStorage(Memory memory, const ForeignMemory& foreign, const KeptBytes& kept);
  /// Throws `Errc::invalid_argument` if a lease that came from elsewhere is of another session, `Errc::corrupt` if
  /// points that came with it cannot be, `Errc::peer_lost` if one is lost.
  static void check(const Memory& memory, const Lease& lease, std::span<const TimelinePoint> points);
  ~TensorStorage();
  TensorStorage(const TensorStorage&) = delete;
  TensorStorage& operator=(const TensorStorage&) = delete;

  [[nodiscard]] const Block& block() const noexcept { return block_; }
  [[nodiscard]] Place place() const { return block_.place(); }
  [[nodiscard]] Memory memory() const { return memory_; }
  /// The work of this process on the device where this lies, or on another.
  [[nodiscard]] std::shared_ptr<DeviceWork> work_at(const Place& place) const;
  /// Whether the memory dies with the process that made it, which is another library's.
  [[nodiscard]] bool dies_with_its_process() const noexcept;
  /// Copies bytes to the beginning of host memory that nothing is done with. Throws as `MappedSlab::write`.
  void write(std::span<const std::byte> bytes) const;
  /// Makes host memory known to a device, if that can be.
  bool make_known_to(Device& device) const;

  /// What `work` submits from now on comes after all that goes on here. Throws `Errc::peer_lost` if the contents are
  /// known to be lost.
  void begin_use(DeviceWork& work) DROVER_EXCLUDES(mutex_);
  /// Says that the work with this ticket uses it.
  void end_use(const WorkTicket& use) DROVER_EXCLUDES(mutex_);
  /// Says that the contents come from `source`, too: what that waits for counts here as well, and if it is lost, so
  /// are they. Requires: of the same session, or nothing goes on with `source`.
  void derive_from(TensorStorage& source) DROVER_EXCLUDES(mutex_);

  /// Holds `keeper` until all that was submitted so far has ended.
  void hold(std::shared_ptr<void> keeper) DROVER_EXCLUDES(mutex_);

  /// Waits until nothing goes on. Throws `Errc::peer_lost` if the contents are lost.
  WaitResult wait(Deadline deadline) DROVER_EXCLUDES(mutex_);
  /// Whether nothing goes on. Throws as `wait`.
  [[nodiscard]] bool is_ready() DROVER_EXCLUDES(mutex_);
  /// The points at which the contents are complete, for others; at most `most`, else it waits. Throws as `wait`.
  [[nodiscard]] std::vector<TimelinePoint> points(std::size_t most) DROVER_EXCLUDES(mutex_);

 private:
  [[nodiscard]] std::vector<WorkTicket> uses() DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<TimelinePoint> origins() DROVER_EXCLUDES(mutex_);

  const Memory memory_;
  Block block_;
  mutable Mutex mutex_;
  std::vector<TimelinePoint> origins_ DROVER_GUARDED_BY(mutex_);  // of others, not known to be reached
  std::vector<WorkTicket> uses_ DROVER_GUARDED_BY(mutex_);        // the latest of each work
};

}  // namespace drover
