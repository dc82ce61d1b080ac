// device/cuda/event.hpp: events of a GPU.
#pragma once

#include "device/cuda/api_types.hpp"
#include "device/live.hpp"
#include "drover/device/stream.hpp"

namespace drover::device::cuda {

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

}  // namespace drover::device::cuda
