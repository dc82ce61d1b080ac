// drover/device/stream.hpp: work that a device does in order, later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "drover/base/clock.hpp"
#include "drover/device/kernel.hpp"
#include "drover/device/memory.hpp"
#include "drover/device/timeline.hpp"

namespace drover {

/// A mark in a stream. Until it is recorded it counts as having happened. Usable from any thread of the
/// process; between processes use timelines.
class StreamEvent {
 public:
  virtual ~StreamEvent() = default;
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  /// Whether the work before the latest record is done; does not block.
  [[nodiscard]] virtual bool has_happened() const = 0;
  /// Blocks this thread until it has happened.
  virtual WaitResult synchronize(Deadline deadline) const = 0;
  /// Milliseconds the device took from `earlier` to this. Requires: both were recorded and have happened,
  /// else `Errc::invalid_argument`.
  [[nodiscard]] virtual double milliseconds_since(const StreamEvent& earlier) const = 0;

 protected:
  /// For backends.
  StreamEvent() = default;
};

/// A queue of work for one device. Each call but the last two submits and returns; the work happens in the order of
/// submission, some time later, on the device. Memory named in a call must stay valid, and host memory unchanged,
/// until the work is done. Submission is safe from any thread.
///
/// Registered host memory is read and written when the work happens. Host memory that is not registered makes
/// `upload` and `download` wait for the work before them and for the copy: on return the memory is free for use.
///
/// Streams have no order among each other but by events and timelines. A GPU has few queues for them, 8 unless
/// CUDA_DEVICE_MAX_CONNECTIONS says 1 to 32, as it does for workers that share a GPU. Once that many streams of a
/// process wait, all its other streams, its blocking copies and even the making of streams wait too. So submit what
/// will store a value before the wait for it, or keep waiting streams fewer than that.
///
/// A range outside live device memory is `Errc::invalid_argument` at once, as far as the device can tell: GPUs carve
/// small allocations from blocks of 2 MiB. Work that fails on the device is reported by a later call as
/// `Errc::device_fault`. Destruction does not wait: submitted work is still done.
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
  /// Sets every byte to `value`.
  virtual void fill(DevicePtr to, std::uint8_t value, std::size_t bytes) = 0;
  /// Runs a kernel. Arguments whose number or sizes differ from the kernel's parameters are
  /// `Errc::invalid_argument` where the backend knows them.
  virtual void launch(const Kernel& kernel, const LaunchShape& shape, std::span<const KernelArgument> arguments) = 0;

  /// Makes `event` happen when all work submitted so far is done.
  virtual void record(StreamEvent& event) = 0;
  /// Holds later work of this stream back until the latest record of `event` before this call has happened.
  virtual void wait(const StreamEvent& event) = 0;
  /// Stores `value` in `word` when all work submitted so far is done and visible to whoever sees the value.
  virtual void signal(TimelineWord& word, std::uint64_t value) = 0;
  /// Holds later work back until `word` has reached `value`. If nobody ever stores that, the stream never
  /// goes on: see kTimelinePoison.
  virtual void wait(TimelineWord& word, std::uint64_t value) = 0;

  /// The stream as other libraries know it; see Device::borrow_stream.
  [[nodiscard]] virtual std::uintptr_t native() const noexcept = 0;
  /// Whether it captures a graph: then what it is given is not done, but becomes part of the graph. Nothing that
  /// others wait for may be submitted, and it waits for nothing that is not in the graph. No stream of emulated
  /// devices does.
  [[nodiscard]] virtual bool is_capturing() const = 0;
  /// Whether all submitted work is done; does not block. False of a borrowed stream that captures a graph.
  [[nodiscard]] virtual bool is_idle() const = 0;
  /// Blocks this thread until all work submitted before is done. Throws `Errc::invalid_argument` for a borrowed
  /// stream that captures a graph.
  virtual WaitResult synchronize(Deadline deadline) const = 0;

 protected:
  /// For backends.
  Stream() = default;
};

}  // namespace drover
