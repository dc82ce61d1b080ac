// drover/device/memory.hpp: device memory, shareable slabs, registered host memory, and memory of other libraries.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

#include "drover/base/fd.hpp"

namespace drover {

/// An address in the memory of a device. Not a pointer, because the CPU must not dereference it.
struct DevicePtr {
  std::uint64_t address = 0;  ///< as the device sees it

  /// Ordered by address.
  auto operator<=>(const DevicePtr&) const = default;
  /// The address `bytes` further on.
  [[nodiscard]] DevicePtr operator+(std::uint64_t bytes) const noexcept { return {address + bytes}; }
};

/// Owns a range of device memory that this process can use: a plain allocation, a mapped slab, or an opened
/// allocation of another process. Destruction waits for the work submitted to its device, then frees the range; work
/// on other devices that uses the range must be complete by then.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// First byte.
  [[nodiscard]] DevicePtr ptr() const noexcept { return ptr_; }
  /// Length in bytes, as requested.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 protected:
  /// For backends.
  DeviceMemory(DevicePtr ptr, std::size_t size) noexcept : ptr_(ptr), size_(size) {}

 private:
  DevicePtr ptr_;
  std::size_t size_;
};

/// A piece of device memory that processes can share. It lives as long as any process has a Slab, a mapping or an
/// exported descriptor of it, even if the process that created it is killed. A Slab needs no context, so that a small
/// process can hold it; map it (Device::map) to read or write it.
class Slab {
 public:
  virtual ~Slab() = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  /// A descriptor to send to another process over a Unix socket. It keeps the slab alive until it is closed, even in
  /// a process without devices. Throws `Errc::limit_reached`.
  [[nodiscard]] virtual Fd export_fd() const = 0;
  /// Length in bytes, a multiple of the granularity.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Index of the device it lies on.
  [[nodiscard]] int device() const noexcept { return device_; }

 protected:
  /// For backends.
  Slab(int device, std::size_t size) noexcept : device_(device), size_(size) {}

 private:
  int device_;
  std::size_t size_;
};

/// Registers host memory for its lifetime: copies run at the full speed of the link, and streams can use timeline
/// words in the memory. Destruction waits for the work submitted to the device it was created by, then unregisters.
/// The caller owns the memory, which must outlive the registration and all work that uses it.
class HostRegistration {
 public:
  virtual ~HostRegistration() = default;
  HostRegistration(const HostRegistration&) = delete;
  HostRegistration& operator=(const HostRegistration&) = delete;

 protected:
  /// For backends.
  HostRegistration() = default;
};

/// Describes an address, whichever library allocated the memory (Device::describe), and with it how the memory can
/// reach another process: by an IPC handle (`can_legacy_ipc`), by a slab (`can_retain`), or otherwise by a copy.
struct PointerInfo {
  bool is_device = false;       ///< live memory of a device; otherwise the rest is meaningless
  int device = -1;              ///< index of that device; -1 if not visible to this process
  DevicePtr base;               ///< start of the allocation, or of the mapped piece if it is virtual memory
  std::size_t size = 0;         ///< bytes from `base` on
  std::uint64_t buffer_id = 0;  ///< differs if the address has been freed and allocated again
  bool can_legacy_ipc = false;  ///< Device::ipc_handle(base) works
  bool is_vmm = false;          ///< virtual memory management, used by slabs and by torch's expandable segments
  bool can_retain = false;      ///< virtual memory that can be exported as a descriptor: Device::retain_slab works
  bool is_pool = false;         ///< from a stream-ordered pool: only a copy can leave the process
  bool is_managed = false;      ///< migrates between host and device: only a copy can leave the process

  /// Distance from `base` to `ptr`: to be sent along with a handle or a slab.
  [[nodiscard]] std::uint64_t offset_of(DevicePtr ptr) const noexcept { return ptr.address - base.address; }
};

/// Names an allocation to other processes of the machine (Device::ipc_handle). Plain bytes, which can be sent any
/// way. Valid only while the process that made it lives and keeps the allocation; slabs have no such condition.
using IpcHandle = std::array<std::byte, 64>;

}  // namespace drover
