// device/host/stream.hpp: streams of the emulated devices, each a queue and a thread.
#pragma once

#include <memory>

#include "device/host/work_queue.hpp"
#include "device/live.hpp"
#include "drover/device/stream.hpp"

namespace drover::device::host {

class HostBackend;

/// Whether a stream closes its queue when it is destroyed.
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
  /// Waits for a copy if its host memory is not registered, as a GPU does.
  void finish_unless_registered(const void* host, std::size_t bytes) const;

  HostBackend& backend_;
  LiveToken live_;
  std::shared_ptr<WorkQueue> queue_;  // shared: destruction does not wait for submitted work
  Ownership ownership_;
};

}  // namespace drover::device::host
