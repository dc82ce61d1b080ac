// device/cuda/module.hpp: kernels of a GPU.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/cuda/api_types.hpp"
#include "device/live.hpp"
#include "drover/device/kernel.hpp"

namespace drover::device::cuda {

class CudaDevice;

class CudaKernel final : public Kernel {
 public:
  CudaKernel(CUfunction handle, std::string name);

  [[nodiscard]] CUfunction handle() const noexcept { return handle_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Throws `Errc::invalid_argument` if number or sizes differ from the kernel's parameters, provided that the driver
  /// reports them (CUDA 12.4 or newer); otherwise the kernel would read garbage.
  void check_arguments(std::span<const KernelArgument> arguments) const;

 private:
  CUfunction handle_;
  std::string name_;
  bool has_sizes_;
  std::vector<std::size_t> sizes_;  // of the parameters, in order
};

class CudaModule final : public Module {
 public:
  CudaModule(CudaDevice& device, std::span<const std::byte> image);
  ~CudaModule() override;
  [[nodiscard]] std::unique_ptr<Kernel> kernel(const std::string& name) const override;

 private:
  CudaDevice& device_;
  LiveToken live_;
  CUmodule handle_ = nullptr;
};

}  // namespace drover::device::cuda
