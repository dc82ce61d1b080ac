// drover/device/backend.hpp: devices, the interface that every kind of device implements, and the choice of the
// backend. Start here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drover/base/fd.hpp"
#include "drover/device/info.hpp"
#include "drover/device/kernel.hpp"
#include "drover/device/memory.hpp"
#include "drover/device/stream.hpp"

namespace drover {

/// A device that this process has opened; on `cuda`, its primary context is retained. Thread-safe. Lives until the
/// process ends; everything it creates must be destroyed before `main` returns.
class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Its properties.
  [[nodiscard]] virtual const DeviceInfo& info() const noexcept = 0;
  /// Memory of the device, over all processes.
  [[nodiscard]] virtual MemoryInfo memory_info() const = 0;

  /// Allocates memory for this process alone. Throws `Errc::device_memory` if the device has too little.
  /// Requires: bytes > 0.
  [[nodiscard]] virtual std::unique_ptr<DeviceMemory> allocate(std::size_t bytes) = 0;
  /// Maps a slab of this device into this process. The Slab may be destroyed afterwards.
  [[nodiscard]] virtual std::unique_ptr<DeviceMemory> map(const Slab& slab) = 0;
  /// Describes the memory at an address, on any device and from any allocator; `is_device` is false for host memory.
  [[nodiscard]] virtual PointerInfo describe(DevicePtr ptr) const = 0;
  /// A handle by which other processes can open the allocation at `base`. Throws `Errc::unsupported` if this kind of
  /// memory has no handles, and `Errc::invalid_argument` if no device memory begins there; see `describe`.
  [[nodiscard]] virtual IpcHandle ipc_handle(DevicePtr base) const = 0;
  /// Opens an allocation of another process, on the device it lies on. `size` is the size that process reported.
  /// Throws `Errc::corrupt` for a handle or size that cannot be right, and `Errc::invalid_argument` for a handle made
  /// by this process. A handle may be opened several times. Destroy the result before the allocation is freed.
  [[nodiscard]] virtual std::unique_ptr<DeviceMemory> open_ipc(const IpcHandle& handle, std::size_t size) = 0;
  /// The slab behind an address of virtual memory that any library mapped in this process, so that it can be
  /// exported. The address lies at `describe(ptr).offset_of(ptr)` in it. Throws as `ipc_handle`.
  [[nodiscard]] virtual std::unique_ptr<Slab> retain_slab(DevicePtr ptr) = 0;
  /// Registers host memory with the devices of this process. Throws `Errc::busy` if it is registered already.
  /// Requires: not empty.
  [[nodiscard]] virtual std::unique_ptr<HostRegistration> register_host(std::span<std::byte> memory) = 0;

  /// Creates a stream, independent of all others.
  [[nodiscard]] virtual std::unique_ptr<Stream> create_stream() = 0;
  /// Borrows a stream that another library created in this process, e.g. the current stream of a framework.
  /// Destruction leaves that stream alone. `native` is the value of Stream::native; on `cuda` a CUstream, with 0, 1
  /// and 2 for CUDA's default streams. Throws `Errc::invalid_argument` for a stream of another context, or one that
  /// an emulated device does not know. Requires: on `cuda`, a live stream that outlives the result.
  [[nodiscard]] virtual std::unique_ptr<Stream> borrow_stream(std::uintptr_t native) = 0;
  /// Whether streams can signal and wait for timeline words; if not, Stream::signal and wait throw
  /// `Errc::unsupported`.
  [[nodiscard]] virtual bool has_timelines() const noexcept = 0;
  /// Whether this device reaches the memory of `other` without going through the host. If so, slabs of `other` mapped
  /// after both devices were opened are copied directly.
  [[nodiscard]] virtual bool can_copy_directly(const Device& other) const = 0;
  /// Creates an event.
  [[nodiscard]] virtual std::unique_ptr<StreamEvent> create_event() = 0;
  /// Loads device code; see Module for the format of `image`. May wait for work in flight. Throws
  /// `Errc::invalid_argument` with the loader's message.
  [[nodiscard]] virtual std::unique_ptr<Module> load_module(std::span<const std::byte> image) = 0;

  /// Host to device, complete on return. Not ordered with any stream: synchronise the streams that use the memory
  /// first. The same holds for `download` and `copy`.
  virtual void upload(DevicePtr to, const void* from, std::size_t bytes) = 0;
  /// Device to host, complete on return.
  virtual void download(void* to, DevicePtr from, std::size_t bytes) = 0;
  /// Device to device, complete on return.
  virtual void copy(DevicePtr to, DevicePtr from, std::size_t bytes) = 0;

 protected:
  /// For backends.
  Device() = default;
};

/// The resources of a backend that a process holds right now; all zero if nothing has leaked.
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

/// All devices of one kind, as this process sees them. Thread-safe. Once a device has been opened, every call in a
/// forked child that would use a device throws `Errc::forked`, because neither CUDA nor emulated streams survive a
/// fork. Start processes by spawning.
class Backend {
 public:
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// The kind of its devices.
  [[nodiscard]] virtual BackendKind kind() const noexcept = 0;
  /// The devices, by index. Initialises none of them.
  [[nodiscard]] virtual const std::vector<DeviceInfo>& devices() const = 0;
  /// Memory of a device, over all processes. Creates no context.
  [[nodiscard]] virtual MemoryInfo memory_info(int device) const = 0;
  /// Opens a device; the first call for each creates its context. Throws `Errc::not_found` for an index out of range,
  /// and `Errc::busy` for a device in exclusive use by another process.
  [[nodiscard]] virtual Device& open(int device) = 0;

  /// Sizes of slabs are multiples of this.
  [[nodiscard]] virtual std::size_t slab_granularity(int device) const = 0;
  /// Creates a slab of at least `bytes`; needs and creates no context. Throws `Errc::device_memory`.
  [[nodiscard]] virtual std::unique_ptr<Slab> create_slab(int device, std::size_t bytes) = 0;
  /// Imports a slab that another process exported. The caller keeps `fd`. `bytes` is the size that process reported;
  /// throws `Errc::corrupt` if it cannot be right.
  [[nodiscard]] virtual std::unique_ptr<Slab> import_slab(int device, const Fd& fd, std::size_t bytes) = 0;

  /// The resources this process holds.
  [[nodiscard]] virtual LiveResources live() const noexcept = 0;

 protected:
  /// For backends.
  Backend() = default;
};

/// The chosen backend, and the reason in words.
struct Selection {
  Backend& backend;    ///< lives until the process ends
  std::string reason;  ///< e.g. "2 GPUs are visible", "emulated devices, because ..."
};

/// The backend of this process: the one that DROVER_BACKEND names (`host` or `cuda`); if it is unset or `auto`,
/// `cuda` where a GPU is visible and the driver loads, and `host` otherwise. Chosen once, at the first call;
/// initialises no device. Throws if DROVER_BACKEND asks for a backend that is not available, saying what is missing.
[[nodiscard]] const Selection& select_backend();

/// The backend of a kind, independent of `select_backend`. Throws `Errc::driver_missing`, `Errc::driver_mismatch` or
/// `Errc::not_found` if `cuda` is not available.
[[nodiscard]] Backend& backend_of(BackendKind kind);

/// Every backend with a device on this machine: always `host`, and `cuda` if a GPU is visible.
[[nodiscard]] std::vector<Backend*> available_backends();

/// Index of the device of `backend` with this UUID. Throws `Errc::not_found` with the list of visible devices.
[[nodiscard]] int device_with_uuid(const Backend& backend, const Uuid& uuid);

}  // namespace drover
