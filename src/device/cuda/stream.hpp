// device/cuda/stream.hpp: streams and events of a GPU.
#pragma once

#include "device/cuda/api_types.hpp"
#include "device/live.hpp"
#include "drover/device/stream.hpp"

namespace drover::cuda {

class CudaDevice;

class CudaEvent final : public StreamEvent {
 public:
  explicit CudaEvent(CudaDevice& device);
  ~CudaEvent() override;

  [[nodiscard]] bool has_happened() const override;
  WaitResult synchronize(Deadline deadline) const override;
  [[nodiscard]] double milliseconds_since(const StreamEvent& earlier) const override;
  [[nodiscard]] CUevent handle() const noexcept { return handle_; }

 private:
  CudaDevice& device_;
  LiveToken live_;
  CUevent handle_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(CudaDevice& device);
  /// Another library's stream, which stays.
  CudaStream(CudaDevice& device, CUstream borrowed) noexcept;
  ~CudaStream() override;

  void upload(DevicePtr to, const void* from, std::size_t bytes) override;
  void download(void* to, DevicePtr from, std::size_t bytes) override;
  void copy(DevicePtr to, DevicePtr from, std::size_t bytes) override;
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
  /// The word's address as the device sees it. Throws `Errc::unsupported` where streams cannot use words, and
  /// `Errc::invalid_argument` for memory that is not registered.
  [[nodiscard]] CUdeviceptr address_of(TimelineWord& word) const;

  CudaDevice& device_;
  LiveToken live_;
  CUstream handle_ = nullptr;
  bool is_borrowed_ = false;
};

}  // namespace drover::cuda
