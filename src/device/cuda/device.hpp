// device/cuda/device.hpp: one GPU in use: its retained primary context.
#pragma once

#include "device/cuda/backend.hpp"
#include "device/cuda/copy_kernel.hpp"
#include "device/cuda/error.hpp"

namespace drover::device::cuda {

class CudaStream;

class CudaDevice final : public Device {
 public:
  /// Retains the primary context, which torch, CuPy and the CUDA runtime use too. It is released when the process
  /// ends, because other libraries may outlive drover.
  CudaDevice(CudaBackend& backend, const DeviceInfo& info, CUdevice ordinal);
  ~CudaDevice() override;

  [[nodiscard]] const DeviceInfo& info() const noexcept override { return info_; }
  [[nodiscard]] MemoryInfo memory_info() const override;
  [[nodiscard]] std::unique_ptr<DeviceMemory> allocate(std::size_t bytes) override;
  [[nodiscard]] std::unique_ptr<DeviceMemory> map(const Slab& slab) override;
  [[nodiscard]] PointerInfo describe(DevicePtr ptr) const override;
  [[nodiscard]] IpcHandle ipc_handle(DevicePtr base) const override;
  [[nodiscard]] std::unique_ptr<DeviceMemory> open_ipc(const IpcHandle& handle, std::size_t size) override;
  [[nodiscard]] std::unique_ptr<Slab> retain_slab(DevicePtr ptr) override;
  [[nodiscard]] std::unique_ptr<HostRegistration> register_host(std::span<std::byte> memory) override;
  [[nodiscard]] std::unique_ptr<Stream> create_stream() override;
  [[nodiscard]] bool has_timelines() const noexcept override { return has_timelines_; }
  [[nodiscard]] std::unique_ptr<Stream> borrow_stream(std::uintptr_t native) override;
  [[nodiscard]] bool can_copy_directly(const Device& other) const override;
  [[nodiscard]] std::unique_ptr<StreamEvent> create_event() override;
  [[nodiscard]] std::unique_ptr<Module> load_module(std::span<const std::byte> image) override;
  void upload(DevicePtr to, const void* from, std::size_t bytes) override;
  void download(void* to, DevicePtr from, std::size_t bytes) override;
  void copy(DevicePtr to, DevicePtr from, std::size_t bytes) override;

  [[nodiscard]] CUdevice ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] CudaBackend& backend() const noexcept { return backend_; }
  [[nodiscard]] CUcontext context() const noexcept { return context_; }
  [[nodiscard]] LiveCounters& counters() const noexcept { return backend_.counters(); }
  [[nodiscard]] CopyKernel& copy_kernel() noexcept { return copy_kernel_; }
  [[nodiscard]] CallFacts facts(const char* what, std::size_t bytes = 0) const noexcept {
    return {info_.index, what, bytes};
  }

 private:
  void prepare();

  CudaBackend& backend_;
  const DeviceInfo& info_;
  CUdevice ordinal_;
  CUcontext context_ = nullptr;
  bool has_timelines_ = false;
  CUstream copies_ = nullptr;  // for the blocking copies; lives with the context
  CopyKernel copy_kernel_{*this};
};

}  // namespace drover::device::cuda
