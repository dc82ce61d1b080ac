// device/host/module.hpp: kernels of the emulated devices, which are C functions in a shared object.
#pragma once

#include <span>

#include "device/live.hpp"
#include "device/shared_library.hpp"
#include "drover/base/fd.hpp"
#include "drover/device/host_kernel.h"
#include "drover/device/kernel.hpp"

namespace drover::device::host {

using HostFunction = void (*)(const HostLaunch*);

class HostKernel final : public Kernel {
 public:
  explicit HostKernel(HostFunction entry) noexcept : function_(entry) {}
  [[nodiscard]] HostFunction function() const noexcept { return function_; }

 private:
  HostFunction function_;
};

class HostModule final : public Module {
 public:
  HostModule(LiveCounters& live, std::span<const std::byte> image);
  [[nodiscard]] std::unique_ptr<Kernel> kernel(const std::string& name) const override;

 private:
  LiveToken live_;
  Fd file_;  // open while loaded: the loader identifies the object by the path of this descriptor
  SharedLibrary library_;
};

}  // namespace drover::device::host
