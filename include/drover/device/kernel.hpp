// drover/device/kernel.hpp: code that runs on a device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace drover {

/// Number of blocks, and of threads in each.
struct LaunchShape {
  std::array<std::uint32_t, 3> grid{1, 1, 1};   ///< blocks in x, y, z
  std::array<std::uint32_t, 3> block{1, 1, 1};  ///< threads per block in x, y, z
  std::uint32_t shared_bytes = 0;               ///< dynamic shared memory per block
};

/// One argument of a launch. Its bytes are copied when the launch is submitted.
struct KernelArgument {
  const void* data = nullptr;  ///< first byte of the value
  std::size_t bytes = 0;       ///< its size, which must be that of the kernel's parameter

  /// Refers to `value`, which must live until the launch call returns; hence no temporaries.
  template <class Value>
  static KernelArgument of(const Value& value) noexcept {
    return {static_cast<const void*>(&value), sizeof(Value)};
  }
  template <class Value>
  static KernelArgument of(const Value&& value) = delete;
};

/// A function in a module. Must not outlive the module.
class Kernel {
 public:
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

 protected:
  /// For backends.
  Kernel() = default;
};

/// Loaded device code. On `cuda` the image is PTX, a cubin or a fatbin. On `host` it is an ELF shared object whose
/// kernels are C functions `void NAME(const HostLaunch*)`; see drover/device/host_kernel.h. Destruction requires that
/// no launch of its kernels is in flight.
class Module {
 public:
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// The kernel called `name`. Throws `Errc::not_found`.
  [[nodiscard]] virtual std::unique_ptr<Kernel> kernel(const std::string& name) const = 0;

 protected:
  /// For backends.
  Module() = default;
};

}  // namespace drover
