// device/host/stream.hpp: streams and events of the emulated devices: a queue and a thread each.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
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

  /// Adds work, to be done after all work before it.
  void submit(std::function<void()> work) DROVER_EXCLUDES(mutex_);
  /// No more work comes; the thread ends after the last piece.
  void close() DROVER_EXCLUDES(mutex_);
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

/// What an event knows, shared with the streams that record it and wait for it.
class EventState {
 public:
  /// A record was submitted; returns its number.
  std::uint64_t submit() DROVER_EXCLUDES(mutex_);
  /// Record `number` has happened.
  void complete(std::uint64_t number) DROVER_EXCLUDES(mutex_);
  /// The number of the latest submitted record.
  [[nodiscard]] std::uint64_t latest() const DROVER_EXCLUDES(mutex_);
  /// Waits until record `number` has happened.
  WaitResult wait(std::uint64_t number, Deadline deadline) const DROVER_EXCLUDES(mutex_);
  /// When the latest record happened. Throws `Errc::invalid_argument` if there is none or it has not.
  [[nodiscard]] Clock::time_point time() const DROVER_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  std::uint64_t submitted_ DROVER_GUARDED_BY(mutex_) = 0;
  std::uint64_t completed_ DROVER_GUARDED_BY(mutex_) = 0;
  Clock::time_point time_ DROVER_GUARDED_BY(mutex_);
};

class HostEvent final : public Event {
 public:
  explicit HostEvent(LiveCounters& live) : live_(live.events), state_(std::make_shared<EventState>()) {}

  [[nodiscard]] bool has_happened() const override;
  WaitResult synchronize(Deadline deadline) const override;
  [[nodiscard]] double milliseconds_since(const Event& earlier) const override;
  [[nodiscard]] const std::shared_ptr<EventState>& state() const noexcept { return state_; }

 private:
  LiveToken live_;
  std::shared_ptr<EventState> state_;  // shared: a submitted record may happen after the event is destroyed
};

class HostStream final : public Stream {
 public:
  explicit HostStream(HostBackend& backend);
  ~HostStream() override;

  void upload(DevicePtr to, const void* from, std::size_t bytes) override;
  void download(void* to, DevicePtr from, std::size_t bytes) override;
  void copy(DevicePtr to, DevicePtr from, std::size_t bytes) override;
  void fill(DevicePtr to, std::uint8_t value, std::size_t bytes) override;
  void launch(const Kernel& kernel, const LaunchShape& shape, std::span<const KernelArgument> arguments) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void signal(TimelineWord& word, std::uint64_t value) override;
  void wait(TimelineWord& word, std::uint64_t value) override;
  [[nodiscard]] bool is_idle() const override;
  WaitResult synchronize(Deadline deadline) const override;

 private:
  void move(void* to, const void* from, std::size_t bytes);

  HostBackend& backend_;
  LiveToken live_;
  std::shared_ptr<WorkQueue> queue_;  // shared: destruction does not wait for submitted work
};

}  // namespace drover::host
