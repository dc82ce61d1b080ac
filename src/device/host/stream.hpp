// device/host/stream.hpp: streams and events of the emulated devices: a queue and a thread each.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "device/live.hpp"
#include "drover/base/clock.hpp"
#include "drover/base/mutex.hpp"
#include "drover/device/stream.hpp"

namespace drover::host {

class HostBackend;

/// The work of one stream, shared between the stream, its thread and whoever waits for it. Outlives the stream
/// until the submitted work is done.
class WorkQueue {
 public:
  /// Starts the thread. Throws `Errc::limit_reached` if the system allows no more threads.
  static std::shared_ptr<WorkQueue> start(std::chrono::microseconds latency);

  /// Its name for those who borrow the stream: its address, never used as one.
  [[nodiscard]] std::uintptr_t native() const noexcept { return reinterpret_cast<std::uintptr_t>(this); }
  /// Adds work, to be done after all work before it. Throws `Errc::invalid_argument` if it was closed.
  void submit(std::function<void()> work) DROVER_EXCLUDES(mutex_);
  /// No more work comes; the thread ends after the last piece.
  void close() DROVER_EXCLUDES(mutex_);
  [[nodiscard]] bool is_closed() const DROVER_EXCLUDES(mutex_);
  [[nodiscard]] bool is_idle() const DROVER_EXCLUDES(mutex_);
  /// Waits for what has been submitted before the call.
  WaitResult wait(Deadline deadline) const DROVER_EXCLUDES(mutex_);

 private:
  void run(std::chrono::microseconds latency);
  /// The next piece; empty when the queue is closed and done.
  std::function<void()> next() DROVER_EXCLUDES(mutex_);

  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  std::deque<std::function<void()>> work_ DROVER_GUARDED_BY(mutex_);
  std::uint64_t submitted_ DROVER_GUARDED_BY(mutex_) = 0;
  std::uint64_t completed_ DROVER_GUARDED_BY(mutex_) = 0;
  bool is_closed_ DROVER_GUARDED_BY(mutex_) = false;
};

/// One record of an event, shared between the stream that will complete it and those who wait for it.
class EventRecord {
 public:
  /// It has happened now.
  void complete() DROVER_EXCLUDES(mutex_);
  /// Waits until it has happened.
  WaitResult wait(Deadline deadline) const DROVER_EXCLUDES(mutex_);
  /// When it happened; nothing if it has not.
  [[nodiscard]] std::optional<Clock::time_point> time() const DROVER_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  std::optional<Clock::time_point> time_ DROVER_GUARDED_BY(mutex_);
};

class HostEvent final : public StreamEvent {
 public:
  explicit HostEvent(LiveCounters& live) : live_(live.events) {}
  ~HostEvent() override;

  [[nodiscard]] bool has_happened() const override;
  WaitResult synchronize(Deadline deadline) const override;
  [[nodiscard]] double milliseconds_since(const StreamEvent& earlier) const override;

  /// The latest record: nullptr if there is none. A later record does not disturb who waits for an earlier one.
  [[nodiscard]] std::shared_ptr<EventRecord> latest() const DROVER_EXCLUDES(mutex_);
  void set_latest(std::shared_ptr<EventRecord> record) DROVER_EXCLUDES(mutex_);

 private:
  [[nodiscard]] Clock::time_point time() const;

  LiveToken live_;
  mutable Mutex mutex_;
  std::shared_ptr<EventRecord> latest_ DROVER_GUARDED_BY(mutex_);  // shared: may happen after the event is destroyed
};

/// Whether a stream ends its queue when it is destroyed.
enum class Ownership { owned, borrowed };

class HostStream final : public Stream {
 public:
  HostStream(HostBackend& backend, std::shared_ptr<WorkQueue> queue, Ownership ownership) noexcept;
  ~HostStream() override;

  void upload(DevicePtr to, const void* from, std::size_t bytes) override;
  void download(void* to, DevicePtr from, std::size_t bytes) override;
  void copy(DevicePtr to, DevicePtr from, std::size_t bytes) override;
  void fill(DevicePtr to, std::uint8_t value, std::size_t bytes) override;
  void launch(const Kernel& kernel, const LaunchShape& shape, std::span<const KernelArgument> arguments) override;
  void record(StreamEvent& event) override;
  void wait(const StreamEvent& event) override;
  void signal(TimelineWord& word, std::uint64_t value) override;
  void wait(TimelineWord& word, std::uint64_t value) override;
  [[nodiscard]] std::uintptr_t native() const noexcept override { return queue_->native(); }
  [[nodiscard]] bool is_capturing() const override { return false; }
  [[nodiscard]] bool is_idle() const override;
  WaitResult synchronize(Deadline deadline) const override;

 private:
  void move(void* to, const void* from, std::size_t bytes);
  /// As a GPU does: waits for a copy whose host memory is not registered.
  void finish_unless_registered(const void* host, std::size_t bytes) const;

  HostBackend& backend_;
  LiveToken live_;
  std::shared_ptr<WorkQueue> queue_;  // shared: destruction does not wait for submitted work
  Ownership ownership_;
};

}  // namespace drover::host
