// device/cuda/foreign.hpp: GPU memory allocated by other libraries and processes.
#pragma once

#include "device/cuda/api_types.hpp"
#include "device/live.hpp"
#include "drover/device/memory.hpp"

namespace drover::device::cuda {

class CudaDevice;

/// Describes an address; see Device::describe.
[[nodiscard]] PointerInfo describe_pointer(const CudaDevice& device, DevicePtr ptr);

/// An allocation of another process, opened by its handle.
class CudaIpcMemory final : public DeviceMemory {
 public:
  CudaIpcMemory(CudaDevice& device, const IpcHandle& handle, std::size_t bytes);
  ~CudaIpcMemory() override;

 private:
  CudaDevice& device_;
  LiveToken live_;
};

/// Retains the physical memory behind `ptr`; 0 if `ptr` is not virtual memory. The caller releases it.
[[nodiscard]] CUmemHandle retain_handle(DevicePtr ptr);

}  // namespace drover::device::cuda
