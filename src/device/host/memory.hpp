// device/host/memory.hpp: memory of the emulated devices.
#pragma once

#include "device/host/backend.hpp"
#include "device/live.hpp"
#include "drover/base/mapping.hpp"
#include "drover/device/memory.hpp"

namespace drover::host {

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
  HostMemory(HostBackend& backend, Mapping mapping);
  ~HostMemory() override;

 private:
  HostBackend& backend_;
  LiveToken live_;
  Mapping mapping_;
};

/// Memory of this process alone, counted against the device's capacity.
class HostAllocation final : public HostMemory {
 public:
  HostAllocation(HostBackend& backend, int device, std::size_t bytes);
  ~HostAllocation() override;

 private:
  HostBackend& backend_;
  int device_;
};

/// A mapped slab. Keeps a descriptor so that the census sees the slab while it is only mapped.
class HostSlabMapping final : public HostMemory {
 public:
  HostSlabMapping(HostBackend& backend, const HostSlab& slab)
      : HostMemory(backend, Mapping::shared(slab.file(), slab.size())), file_(slab.file().duplicate()) {}

 private:
  Fd file_;
};

/// Host memory that the emulated devices accept timeline words in.
class HostMemoryRegistration final : public HostRegistration {
 public:
  HostMemoryRegistration(HostBackend& backend, std::span<std::byte> memory);
  ~HostMemoryRegistration() override;

 private:
  HostBackend& backend_;
  LiveToken live_;
  std::uint64_t begin_;
};

}  // namespace drover::host
