// drover/device/memory.hpp: memory of a device, shareable slabs, and host memory made known to a device.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

#include "drover/base/fd.hpp"

namespace drover {

/// An address in a device's memory. Not dereferenced by the CPU, hence no pointer.
struct DevicePtr {
  std::uint64_t address = 0;  ///< as the device sees it

  /// Ordered by address.
  auto operator<=>(const DevicePtr&) const = default;
  /// `bytes` further on.
  [[nodiscard]] DevicePtr operator+(std::uint64_t bytes) const noexcept { return {address + bytes}; }
};

/// Owns a range of device memory that this process can use: a plain allocation, or a mapped slab.
/// Destruction waits for the work submitted to its device, then gives the range back; work of other devices that uses
/// the range must be done before.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// First byte.
  [[nodiscard]] DevicePtr ptr() const noexcept { return ptr_; }
  /// Length in bytes, as asked for.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 protected:
  /// For backends.
  DeviceMemory(DevicePtr ptr, std::size_t size) noexcept : ptr_(ptr), size_(size) {}

 private:
  DevicePtr ptr_;
  std::size_t size_;
};

/// A piece of device memory that processes can share. It lives as long as anyone, in any process, has a
/// Slab, a mapping or an exported descriptor of it; whoever made it may be killed. A Slab cannot be read or
/// written until it is mapped (Device::map), and needs no context, so that a small process can hold it.
class Slab {
 public:
  virtual ~Slab() = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  /// A descriptor to hand to another process over a Unix socket. Holding it keeps the slab alive, with or
  /// without devices in the holder; a forgotten one is a leak. Throws `Errc::limit_reached`.
  [[nodiscard]] virtual Fd export_fd() const = 0;
  /// Length in bytes, a multiple of the granularity.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// The index of the device it lies on.
  [[nodiscard]] int device() const noexcept { return device_; }

 protected:
  /// For backends.
  Slab(int device, std::size_t size) noexcept : device_(device), size_(size) {}

 private:
  int device_;
  std::size_t size_;
};

/// Host memory made known to a device: copies run at the full speed of the link, and timeline words in it
/// can be used by streams. Destruction waits for the work of the device it was made with and ends that; the memory
/// itself belongs to the caller and must outlive the registration and all work that uses it.
class HostRegistration {
 public:
  virtual ~HostRegistration() = default;
  HostRegistration(const HostRegistration&) = delete;
  HostRegistration& operator=(const HostRegistration&) = delete;

 protected:
  /// For backends.
  HostRegistration() = default;
};

}  // namespace drover
