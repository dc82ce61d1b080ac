// device/host/device.hpp: one emulated GPU.
#pragma once

#include "device/host/backend.hpp"

namespace drover::device::host {

class HostDevice final : public Device {
 public:
  HostDevice(HostBackend& backend, const DeviceInfo& info) noexcept : backend_(backend), info_(info) {}

  [[nodiscard]] const DeviceInfo& info() const noexcept override { return info_; }
  [[nodiscard]] MemoryInfo memory_info() const override { return backend_.memory_info(info_.index); }
  [[nodiscard]] std::unique_ptr<DeviceMemory> allocate(std::size_t bytes) override;
  [[nodiscard]] std::unique_ptr<DeviceMemory> map(const Slab& slab) override;
  [[nodiscard]] PointerInfo describe(DevicePtr ptr) const override;
  [[nodiscard]] IpcHandle ipc_handle(DevicePtr base) const override;
  [[nodiscard]] std::unique_ptr<DeviceMemory> open_ipc(const IpcHandle& handle, std::size_t size) override;
  [[nodiscard]] std::unique_ptr<Slab> retain_slab(DevicePtr ptr) override;
  [[nodiscard]] std::unique_ptr<HostRegistration> register_host(std::span<std::byte> memory) override;
  [[nodiscard]] std::unique_ptr<Stream> create_stream() override;
  [[nodiscard]] bool has_timelines() const noexcept override { return backend_.has_timelines(); }
  [[nodiscard]] std::unique_ptr<Stream> borrow_stream(std::uintptr_t native) override;
  [[nodiscard]] bool can_copy_directly(const Device& other) const override;
  [[nodiscard]] std::unique_ptr<StreamEvent> create_event() override;
  [[nodiscard]] std::unique_ptr<Module> load_module(std::span<const std::byte> image) override;
  void upload(DevicePtr to, const void* from, std::size_t bytes) override;
  void download(void* to, DevicePtr from, std::size_t bytes) override;
  void copy(DevicePtr to, DevicePtr from, std::size_t bytes) override;

 private:
  HostBackend& backend_;
  const DeviceInfo& info_;
};

}  // namespace drover::device::host
