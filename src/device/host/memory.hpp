// device/host/memory.hpp: memory of the emulated devices.
#pragma once

#include "device/host/backend.hpp"
#include "device/live.hpp"
#include "drover/base/mapping.hpp"
#include "drover/device/memory.hpp"

namespace drover::host {

/// Memory files of allocations; the census counts none of them.
inline constexpr const char* kAllocationLabel = "drover-allocation";

/// A memory file that stands for a piece of device memory.
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

/// Mapped memory that the backend knows as device memory while this lives.
class HostMemory : public DeviceMemory {
 public:
  /// All of `file`, which is kept as long as the mapping: the census sees slabs by their descriptors, and others find
  /// allocations by them.
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

/// A part of a device's capacity.
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

/// Memory of this process, counted against the device's capacity. A file, so that it can be named to others.
class HostAllocation final : private Reservation, public HostMemory {
 public:
  HostAllocation(HostBackend& backend, int device, std::size_t bytes)
      : Reservation(backend, device, bytes),
        HostMemory(backend, device, make_memory_file(kAllocationLabel, bytes), bytes, RangeNote::Kind::allocation) {}
};

/// Host memory that the emulated devices accept timeline words in.
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

}  // namespace drover::host
