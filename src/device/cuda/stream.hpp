// device/cuda/stream.hpp: streams of a GPU.
#pragma once

#include "device/cuda/api_types.hpp"
#include "device/live.hpp"
#include "drover/device/stream.hpp"

namespace drover::device::cuda {

class CudaDevice;

class CudaStream final : public Stream {
 public:
  explicit CudaStream(CudaDevice& device);
  /// Borrows a stream of another library, which destruction leaves alone.
  CudaStream(CudaDevice& device, CUstream borrowed) noexcept;
  ~CudaStream() override;

  void upload(DevicePtr to, const void* from, std::size_t bytes) override;
  void download(void* to, DevicePtr from, std::size_t bytes) override;
  void copy(DevicePtr to, DevicePtr from, std::size_t bytes) override;
  void copy_all(std::span<const DeviceCopy> copies) override;
  void fill(DevicePtr to, std::uint8_t value, std::size_t bytes) override;
  void launch(const Kernel& kernel, const LaunchShape& shape, std::span<const KernelArgument> arguments) override;
  void record(StreamEvent& event) override;
  void wait(const StreamEvent& event) override;
  void signal(TimelineWord& word, std::uint64_t value) override;
  void wait(TimelineWord& word, std::uint64_t value) override;
  [[nodiscard]] std::uintptr_t native() const noexcept override { return reinterpret_cast<std::uintptr_t>(handle_); }
  [[nodiscard]] bool is_capturing() const override;
  [[nodiscard]] bool is_idle() const override;
  WaitResult synchronize(Deadline deadline) const override;

 private:
  /// The device address of `word`. Throws `Errc::unsupported` if the device has no timelines, and
  /// `Errc::invalid_argument` if the memory is not registered.
  [[nodiscard]] CUdeviceptr address_of(TimelineWord& word) const;

  CudaDevice& device_;
  LiveToken live_;
  CUstream handle_ = nullptr;
  bool is_borrowed_ = false;
};

}  // namespace drover::device::cuda
