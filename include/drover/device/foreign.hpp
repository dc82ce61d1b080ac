// drover/device/foreign.hpp: memory that others allocated: what a raw address is, and handles between processes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "drover/device/memory.hpp"

namespace drover {

/// What an address is to the devices of a process, whoever allocated it (Device::describe). It tells how the memory
/// can reach another process: by an IPC handle (`can_legacy_ipc`), by a slab (`can_retain`), or else by a copy.
struct PointerInfo {
  bool is_device = false;       ///< live memory of a device; if not, nothing below says anything
  int device = -1;              ///< index of that device; -1 if this process does not see it
  DevicePtr base;               ///< begin of the allocation, or of the mapped piece if it is virtual memory
  std::size_t size = 0;         ///< bytes from `base` on
  std::uint64_t buffer_id = 0;  ///< another one when the address was freed and given out again
  bool can_legacy_ipc = false;  ///< Device::ipc_handle(base) works
  bool is_vmm = false;      ///< a piece of virtual memory management, as slabs and torch's expandable segments are
  bool can_retain = false;  ///< such a piece that can be exported as a descriptor: Device::retain_slab works
  bool is_pool = false;     ///< from a stream-ordered pool: only a copy can leave the process
  bool is_managed = false;  ///< migrates between host and device: only a copy can leave the process

  /// How far `ptr` lies behind `base`: what must travel along with a handle or a slab.
  [[nodiscard]] std::uint64_t offset_of(DevicePtr ptr) const noexcept { return ptr.address - base.address; }
};

/// Names an allocation to other processes of the machine (Device::ipc_handle). Plain bytes, sent in any way. Good
/// only as long as the process that made it lives and keeps the allocation: slabs have no such condition.
using IpcHandle = std::array<std::byte, 64>;

}  // namespace drover
