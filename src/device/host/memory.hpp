// device/host/memory.hpp: memory of the emulated devices, whose addresses are addresses of this process.
#pragma once

#include "device/host/backend.hpp"
#include "device/live.hpp"
#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "drover/device/memory.hpp"

namespace drover::device::host {

/// The pointer to the bytes at `ptr`.
inline void* pointer(DevicePtr ptr) {
  return reinterpret_cast<void*>(ptr.address);  // NOLINT(performance-no-int-to-ptr): emulated addresses are ours
}

/// Throws `Errc::invalid_argument` if a copy would access a null pointer, as the driver of a GPU does.
inline void check_host(const void* host, std::size_t bytes) {
  require(bytes == 0 || host != nullptr, "a copy from or to a null pointer was requested");
}

/// Label of the memory files of allocations, which the census does not count.
inline constexpr const char* kAllocationLabel = "drover-allocation";

/// A slab, emulated by a memory file.
class HostSlab final : public Slab {
 public:
  HostSlab(HostBackend& backend, int device, Fd file, std::size_t bytes) noexcept
      : Slab(device, bytes), live_(backend.counters().slabs), file_(std::move(file)) {}

  [[nodiscard]] Fd export_fd() const override { return file_.duplicate(); }
  [[nodiscard]] const Fd& file() const noexcept { return file_; }

 private:
  LiveToken live_;
  Fd file_;
};

/// Mapped memory that the backend treats as device memory while this lives.
class HostMemory : public DeviceMemory {
 public:
  /// Maps all of `file` and keeps it open: the census finds slabs by their descriptors, and other processes find
  /// allocations by theirs.
  HostMemory(HostBackend& backend, int device, Fd file, std::size_t bytes, RangeNote::Kind kind)
      : HostMemory(backend, device, Mapping::shared(file, bytes), std::move(file), kind) {}
  ~HostMemory() override;

 private:
  HostMemory(HostBackend& backend, int device, Mapping mapping, Fd&& file, RangeNote::Kind kind);

  HostBackend& backend_;
  int device_;
  LiveToken live_;
  Fd file_;
  Mapping mapping_;
};

/// A reserved part of a device's capacity.
class Reservation {
 public:
  Reservation(HostBackend& backend, int device, std::size_t bytes)
      : backend_(backend), device_(device), bytes_(bytes) {
    backend_.reserve(device_, bytes_);
  }
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

 private:
  HostBackend& backend_;
  int device_;
  std::size_t bytes_;
};

/// An allocation of this process, counted against the device's capacity. A memory file, so that it can have a handle.
class HostAllocation final : private Reservation, public HostMemory {
 public:
  HostAllocation(HostBackend& backend, int device, std::size_t bytes)
      : Reservation(backend, device, bytes),
        HostMemory(backend, device, make_memory_file(kAllocationLabel, bytes), bytes, RangeNote::Kind::allocation) {}
};

/// Host memory in which the emulated devices accept timeline words.
class HostMemoryRegistration final : public HostRegistration {
 public:
  HostMemoryRegistration(HostBackend& backend, int device, std::span<std::byte> memory);
  ~HostMemoryRegistration() override;

 private:
  HostBackend& backend_;
  int device_;
  LiveToken live_;
  std::uint64_t begin_;
};

}  // namespace drover::device::host
