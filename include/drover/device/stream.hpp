// drover/device/stream.hpp: streams, the queues of asynchronous work of a device, and their events.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "drover/base/clock.hpp"
#include "drover/device/kernel.hpp"
#include "drover/device/memory.hpp"
#include "drover/device/timeline.hpp"

namespace drover {

/// A mark in a stream. Before it is first recorded it counts as having happened. Usable from any thread of the
/// process; between processes use timelines.
class StreamEvent {
 public:
  virtual ~StreamEvent() = default;
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  /// Whether the work before the latest record is complete; does not block.
  [[nodiscard]] virtual bool has_happened() const = 0;
  /// Blocks the calling thread until it has happened.
  virtual WaitResult synchronize(Deadline deadline) const = 0;
  /// Milliseconds on the device from `earlier` to this event. Throws `Errc::invalid_argument` unless both were
  /// recorded and have happened.
  [[nodiscard]] virtual double milliseconds_since(const StreamEvent& earlier) const = 0;

 protected:
  /// For backends.
  StreamEvent() = default;
};

/// A copy of bytes between two places on devices.
struct DeviceCopy {
  DevicePtr to;           ///< first byte written
  DevicePtr from;         ///< first byte read
  std::size_t bytes = 0;  ///< how many
};

/// A queue of work for one device. Copies, fills, launches, records, signals and waits are submitted and return at
/// once; the device runs them later, in order of submission. Memory named in a call must stay valid, and host memory
/// unchanged, until the work is complete. Submission is thread-safe.
///
/// Registered host memory is read and written when the work runs. For host memory that is not registered, `upload`
/// and `download` wait for all earlier work and for the copy: the caller may reuse the memory on return.
///
/// Streams are ordered among each other by events and timelines only. A GPU has few hardware queues for them: 8, or 1
/// to 32 as CUDA_DEVICE_MAX_CONNECTIONS says, which pools set for workers that share a GPU. Once that many streams of
/// a process wait, its other streams, its blocking copies and even the creation of streams wait too. So submit the
/// work that stores a value before the wait for that value, or keep the number of waiting streams below that limit.
///
/// A range outside live device memory is `Errc::invalid_argument` at once, as far as the device can tell: GPUs carve
/// small allocations from blocks of 2 MiB. Work that fails on the device is reported by a later call as
/// `Errc::device_fault`. Destruction does not wait: submitted work still runs.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Host to device.
  virtual void upload(DevicePtr to, const void* from, std::size_t bytes) = 0;
  /// Device to host.
  virtual void download(void* to, DevicePtr from, std::size_t bytes) = 0;
  /// Device to device, also between two devices of one backend.
  virtual void copy(DevicePtr to, DevicePtr from, std::size_t bytes) = 0;
  /// Device to device, many at once, in any order; for many small ones much cheaper than `copy` for each. Requires:
  /// no target overlaps another target or a source.
  virtual void copy_all(std::span<const DeviceCopy> copies);
  /// Sets every byte to `value`.
  virtual void fill(DevicePtr to, std::uint8_t value, std::size_t bytes) = 0;
  /// Runs a kernel. Arguments whose number or sizes differ from the kernel's parameters are
  /// `Errc::invalid_argument` where the backend knows them.
  virtual void launch(const Kernel& kernel, const LaunchShape& shape, std::span<const KernelArgument> arguments) = 0;

  /// Makes `event` happen when all work submitted so far is complete.
  virtual void record(StreamEvent& event) = 0;
  /// Holds back later work of this stream until the latest record of `event` before this call has happened.
  virtual void wait(const StreamEvent& event) = 0;
  /// Stores `value` in `word` when all work submitted so far is complete; a reader of the value sees that work.
  virtual void signal(TimelineWord& word, std::uint64_t value) = 0;
  /// Holds back later work until `word` has reached `value`. If it never does, the stream hangs: kTimelinePoison.
  virtual void wait(TimelineWord& word, std::uint64_t value) = 0;

  /// The handle by which other libraries know the stream; see Device::borrow_stream.
  [[nodiscard]] virtual std::uintptr_t native() const noexcept = 0;
  /// Whether it is capturing a graph: submitted work then becomes part of the graph and does not run. Submit nothing
  /// that other streams or processes wait for, and no wait for work outside the graph. Emulated ones never do.
  [[nodiscard]] virtual bool is_capturing() const = 0;
  /// Whether all submitted work is complete; does not block. False for a borrowed stream that is capturing a graph.
  [[nodiscard]] virtual bool is_idle() const = 0;
  /// Blocks the calling thread until all work submitted so far is complete. Throws `Errc::invalid_argument` for a
  /// borrowed stream that is capturing a graph.
  virtual WaitResult synchronize(Deadline deadline) const = 0;

 protected:
  /// For backends.
  Stream() = default;
};

/// Tells drover that this process may be capturing CUDA graphs. Unmapping memory, or closing an opened allocation,
/// waits for all work of the GPU, and CUDA normally invalidates every capture in progress when a thread waits so.
/// While any CaptureNotice exists, drover waits in another way that leaves captures alone, but keeps other threads
/// from submitting work to the GPU meanwhile. In Python, `drover.torch` does this for torch. Cheap; thread-safe.
class CaptureNotice {
 public:
  CaptureNotice() noexcept { ++count; }
  ~CaptureNotice() { --count; }
  CaptureNotice(const CaptureNotice&) = delete;
  CaptureNotice& operator=(const CaptureNotice&) = delete;

  /// Whether any exists.
  [[nodiscard]] static bool exists() noexcept { return count > 0; }

 private:
  inline static std::atomic<int> count{0};
};

}  // namespace drover
