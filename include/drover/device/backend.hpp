// drover/device/backend.hpp: the interface that every kind of device implements. Start here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "drover/base/fd.hpp"
#include "drover/device/foreign.hpp"
#include "drover/device/info.hpp"
#include "drover/device/kernel.hpp"
#include "drover/device/memory.hpp"
#include "drover/device/stream.hpp"

namespace drover {

/// A device that this process uses: on `cuda`, one whose primary context has been retained. Safe from any
/// thread. Lives until the process ends; what it makes must be destroyed before `main` returns.
class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// What is known of it.
  [[nodiscard]] virtual const DeviceInfo& info() const noexcept = 0;
  /// Memory of the device over all processes.
  [[nodiscard]] virtual MemoryInfo memory_info() const = 0;

  /// Memory for this process alone. Throws `Errc::device_memory` when the device has too little.
  /// Requires: bytes > 0.
  [[nodiscard]] virtual std::unique_ptr<DeviceMemory> allocate(std::size_t bytes) = 0;
  /// Makes a slab of this device usable here. The mapping does not need the Slab afterwards.
  [[nodiscard]] virtual std::unique_ptr<DeviceMemory> map(const Slab& slab) = 0;
  /// What is at an address, whoever allocated it and on whichever device; `is_device` is false for host memory.
  [[nodiscard]] virtual PointerInfo describe(DevicePtr ptr) const = 0;
  /// Names the allocation at `base` to other processes. Throws `Errc::unsupported` where that kind of memory has no
  /// handle, and `Errc::invalid_argument` if no device memory begins there; see `describe`.
  [[nodiscard]] virtual IpcHandle ipc_handle(DevicePtr base) const = 0;
  /// The allocation that another process named. `size` is what it reported; a handle or size that cannot be right is
  /// `Errc::corrupt`, a handle of this process's own `Errc::invalid_argument`. To be opened on the device
  /// it lies on, several times if need be, and destroyed before the other process frees the allocation.
  [[nodiscard]] virtual std::unique_ptr<DeviceMemory> open_ipc(const IpcHandle& handle, std::size_t size) = 0;
  /// The slab behind an address in virtual memory that anyone mapped here, so that it can be exported. The address
  /// lies at `describe(ptr).offset_of(ptr)` in it. Throws as `ipc_handle`.
  [[nodiscard]] virtual std::unique_ptr<Slab> retain_slab(DevicePtr ptr) = 0;
  /// Makes host memory known to the devices of this process. Memory that is registered already is
  /// `Errc::busy`. Requires: not empty.
  [[nodiscard]] virtual std::unique_ptr<HostRegistration> register_host(std::span<std::byte> memory) = 0;

  /// A new stream, independent of all others.
  [[nodiscard]] virtual std::unique_ptr<Stream> create_stream() = 0;
  /// A stream that another library made in this process, e.g. a framework's current one: submits to it and never
  /// destroys it. `native` is what Stream::native gives; on `cuda` a CUstream, with 0, 1 and 2 for the default
  /// streams as CUDA has them. One of another context, and one that an emulated device does not know, is
  /// `Errc::invalid_argument`. Requires: on `cuda` a live stream, which outlives this.
  [[nodiscard]] virtual std::unique_ptr<Stream> borrow_stream(std::uintptr_t native) = 0;
  /// Whether streams can signal and wait for timeline words; else Stream::signal and wait are `Errc::unsupported`.
  [[nodiscard]] virtual bool has_timelines() const noexcept = 0;
  /// Whether this device reaches memory of `other` without going through the host. Slabs of `other` that are mapped
  /// after both devices were opened are then copied directly.
  [[nodiscard]] virtual bool can_copy_directly(const Device& other) const = 0;
  /// A new event.
  [[nodiscard]] virtual std::unique_ptr<StreamEvent> create_event() = 0;
  /// Loads device code; see Module for the form of `image`. May wait for work in flight. Throws
  /// `Errc::invalid_argument` with the loader's words.
  [[nodiscard]] virtual std::unique_ptr<Module> load_module(std::span<const std::byte> image) = 0;

  /// Host to device; done on return. Not ordered with any stream: synchronise the streams that use the
  /// memory first. The same holds for the next two.
  virtual void upload(DevicePtr to, const void* from, std::size_t bytes) = 0;
  /// Device to host; done on return.
  virtual void download(void* to, DevicePtr from, std::size_t bytes) = 0;
  /// Device to device; done on return.
  virtual void copy(DevicePtr to, DevicePtr from, std::size_t bytes) = 0;

 protected:
  /// For backends.
  Device() = default;
};

/// What a process holds of a backend right now; all zero when nothing has leaked.
struct LiveResources {
  std::size_t memory = 0;         ///< allocations and mapped slabs
  std::size_t slabs = 0;          ///< Slab objects
  std::size_t registrations = 0;  ///< host registrations
  std::size_t streams = 0;        ///< streams not destroyed
  std::size_t events = 0;         ///< events not destroyed
  std::size_t modules = 0;        ///< modules not destroyed

  /// Equal in every count.
  bool operator==(const LiveResources&) const = default;
};

/// All devices of one kind, as this process sees them. Safe from any thread. Once a device has been opened, every
/// call in a fork of this process that would use a device throws `Errc::forked`: neither CUDA nor emulated streams
/// survive a fork. Start processes by spawning.
class Backend {
 public:
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// Which kind.
  [[nodiscard]] virtual BackendKind kind() const noexcept = 0;
  /// The devices, by index. Initialises none of them.
  [[nodiscard]] virtual const std::vector<DeviceInfo>& devices() const = 0;
  /// Memory of a device over all processes, without a context.
  [[nodiscard]] virtual MemoryInfo memory_info(int device) const = 0;
  /// The device for use; the first call for each creates its context. Throws `Errc::not_found` for an index
  /// that is not there, `Errc::busy` for a device in exclusive use elsewhere.
  [[nodiscard]] virtual Device& open(int device) = 0;

  /// Sizes of slabs are multiples of this.
  [[nodiscard]] virtual std::size_t slab_granularity(int device) const = 0;
  /// Makes a slab of at least `bytes`; needs and creates no context. Throws `Errc::device_memory`.
  [[nodiscard]] virtual std::unique_ptr<Slab> create_slab(int device, std::size_t bytes) = 0;
  /// Takes part in a slab another process exported. `fd` stays the caller's. `bytes` is the size its maker
  /// reported; one that cannot be right is `Errc::corrupt`.
  [[nodiscard]] virtual std::unique_ptr<Slab> import_slab(int device, const Fd& fd, std::size_t bytes) = 0;

  /// What this process holds.
  [[nodiscard]] virtual LiveResources live() const noexcept = 0;

 protected:
  /// For backends.
  Backend() = default;
};

}  // namespace drover
