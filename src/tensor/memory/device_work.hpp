// tensor/memory/device_work.hpp: what a process does on a device with its shared memory, in order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/mutex.hpp"
#include "drover/device/backend.hpp"
#include "drover/ipc/membership.hpp"
#include "drover/tensor/memory.hpp"
#include "ipc/timeline/timeline_table.hpp"

namespace drover::tensor {

/// Waits on the CPU until a point is no longer pending. Throws `Errc::peer_lost` if the session has ended.
WaitResult wait_for_point(ipc::TimelineTable& timelines, const ipc::TimelinePoint& point,
                          const Membership& membership, Deadline deadline);

/// One stream of a device, its timeline, and tickets: when a ticket is done, so is everything that was submitted
/// before it was issued. Orders all work of a `Memory` on a device. Safe for all threads.
///
/// With `Ordering::host` there is no timeline: nothing leaves the process before the stream is done with it, and
/// nothing is submitted before its input is ready.
class DeviceWork {
 public:
  /// `timelines` may not be null.
  DeviceWork(Device& device, Ordering ordering, std::shared_ptr<Membership> membership,
             std::shared_ptr<ipc::TimelineTable> timelines);
  /// Waits until the stream is idle.
  ~DeviceWork();
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

  [[nodiscard]] Device& device() const noexcept { return device_; }
  /// Whether other processes of this session can wait for its points.
  [[nodiscard]] bool has_timeline_in(const Membership& session) const noexcept {
    return has_timeline() && membership_.get() == &session;
  }
  /// The session whose points it can wait for.
  [[nodiscard]] const Membership& session() const noexcept { return *membership_; }
  /// Waits until the stream is idle. Meanwhile calls `recover_without_keeper`.
  void finish() DROVER_EXCLUDES(mutex_);
  /// Without a keeper, frees the points of dead processes that the stream waits for, as a keeper does.
  void recover_without_keeper() noexcept DROVER_EXCLUDES(mutex_);
  /// Whether other processes can wait for its points.
  [[nodiscard]] bool has_timeline() const noexcept { return slot_.has_value(); }

  /// Calls `task(stream)`, which submits work, and returns the ticket of that work.
  template <class Task>
  std::uint64_t submit(Task&& task) DROVER_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::forward<Task>(task)(*stream_);
    return next_;
  }
  /// Orders later work after everything that `other`, a stream of the same device, was given so far. Returns the
  /// ticket of that wait.
  std::uint64_t follow(Stream& other) DROVER_EXCLUDES(mutex_);
  /// The same for the default stream. nullopt while another stream that waits for that one captures a graph: asking
  /// would invalidate the capture.
  [[nodiscard]] std::optional<std::uint64_t> follow_default_stream() DROVER_EXCLUDES(mutex_);
  /// Orders what `other` is given later after everything that was submitted so far.
  void lead(Stream& other) DROVER_EXCLUDES(mutex_);
  /// The point at which a ticket is done, for other processes to wait for. Requires: `has_timeline`.
  [[nodiscard]] ipc::TimelinePoint point_of(std::uint64_t ticket) DROVER_EXCLUDES(mutex_);
  /// The same, but nullopt if the ticket is known to be done. Throws as `is_done`, but not for a fault in work
  /// submitted since the last point. Requires: `has_timeline`.
  [[nodiscard]] std::optional<ipc::TimelinePoint> pending_point_of(std::uint64_t ticket) DROVER_EXCLUDES(mutex_);
  /// Whether a ticket is done. Throws `Errc::device_fault` if the device failed.
  [[nodiscard]] bool is_done(std::uint64_t ticket) DROVER_EXCLUDES(mutex_);
  /// Waits on the CPU until a ticket is done. Throws as `is_done`, and `Errc::peer_lost` if the session ends while
  /// the stream waits for other processes.
  WaitResult wait(std::uint64_t ticket, Deadline deadline) DROVER_EXCLUDES(mutex_);
  /// Whether everything that was submitted is done. Throws as `is_done`.
  [[nodiscard]] bool is_idle() DROVER_EXCLUDES(mutex_);
  /// The ticket of the latest work, which an exception may have cut short.
  [[nodiscard]] std::uint64_t latest() DROVER_EXCLUDES(mutex_);
  /// Orders later work after the point, or after its loss. Without a timeline, waits on the CPU.
  void wait_for(const ipc::TimelinePoint& point) DROVER_EXCLUDES(mutex_);

 private:
  // Requires: `has_timeline`.
  [[nodiscard]] std::uint32_t slot() const noexcept { return slot_.value_or(0); }
  void signal(std::uint64_t ticket) DROVER_REQUIRES(mutex_);
  [[nodiscard]] bool is_reached(std::uint64_t ticket) DROVER_REQUIRES(mutex_);
  [[nodiscard]] bool is_stream_idle() DROVER_REQUIRES(mutex_);
  [[nodiscard]] bool waits_for_others() DROVER_EXCLUDES(mutex_);
  [[nodiscard]] StreamEvent& mark() DROVER_REQUIRES(mutex_);
  void take_timeline();

  Device& device_;
  const std::shared_ptr<Membership> membership_;
  const std::shared_ptr<ipc::TimelineTable> timelines_;
  std::shared_ptr<HostRegistration> registration_;  // shared: one per process, of the pages of all timelines
  std::optional<std::uint32_t> slot_;
  std::unique_ptr<Stream> stream_;
  Mutex mutex_;
  std::unique_ptr<StreamEvent> mark_ DROVER_GUARDED_BY(mutex_);  // reused, since creating one takes long
  std::uint64_t next_ DROVER_GUARDED_BY(mutex_) = 1;             // the ticket of work submitted now
  bool is_lost_ DROVER_GUARDED_BY(mutex_) = false;               // the device has failed
  std::uint64_t done_ DROVER_GUARDED_BY(mutex_) = 0;  // without a timeline: the latest ticket known to be done
  std::vector<ipc::TimelinePoint> awaited_ DROVER_GUARDED_BY(mutex_);  // points that the stream may still wait for
};

/// The handle of the stream of a GPU that all threads of a process share, unless they choose another one. It exists
/// as long as the device is open, and no graph can be captured from it.
inline constexpr std::uintptr_t kDefaultStream = 1;

/// Some work, and when it is done.
struct WorkTicket {
  std::shared_ptr<DeviceWork> work;  ///< shared: with the Memory and all tensors it works on
  std::uint64_t ticket = 0;
};

/// Whether a use has ended; work on a device that failed has.
[[nodiscard]] bool has_ended(const WorkTicket& use) noexcept;

}  // namespace drover::tensor
