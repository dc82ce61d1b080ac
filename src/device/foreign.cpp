#include "device/foreign.hpp"

#include <fmt/format.h>

namespace drover::device {
namespace {

void require_device(const PointerInfo& info, DevicePtr ptr, std::source_location where) {
  if (info.is_device) return;
  throw Error(Errc::invalid_argument, fmt::format("there is no live device memory at {:#x}", ptr.address),
              "pass an address of device memory that has not been freed", where);
}

const char* kind_of(const PointerInfo& info) {
  if (info.is_managed) return "managed memory";
  if (info.is_pool) return "memory of a stream-ordered pool";
  if (info.is_vmm && !info.can_retain) return "virtual memory made without a shareable handle type";
  if (info.is_vmm) return "virtual memory";
  return info.can_legacy_ipc ? "a plain allocation" : "memory opened by a handle of another process";
}

const char* way_out(const PointerInfo& info) {
  if (info.can_retain) return "share it as a slab (Device::retain_slab)";
  if (info.can_legacy_ipc) return "send its handle (Device::ipc_handle) and the offset";
  return "copy it into a slab (Device::copy) and share that";
}

}  // namespace

void require_ipc(const PointerInfo& info, DevicePtr ptr, std::source_location where) {
  require_device(info, ptr, where);
  if (!info.can_legacy_ipc) {
    throw Error(Errc::unsupported, fmt::format("{} at {:#x} has no IPC handle", kind_of(info), ptr.address),
                way_out(info), where);
  }
  if (ptr == info.base) return;
  throw Error(Errc::invalid_argument,
              fmt::format("{:#x} lies {} bytes inside the allocation at {:#x}, and handles name whole allocations",
                          ptr.address, info.offset_of(ptr), info.base.address),
              "ask for the handle of describe().base and send the offset along", where);
}

void require_retainable(const PointerInfo& info, DevicePtr ptr, std::source_location where) {
  require_device(info, ptr, where);
  if (info.can_retain) return;
  throw Error(Errc::unsupported, fmt::format("{} at {:#x} is not part of a slab", kind_of(info), ptr.address),
              way_out(info), where);
}

Error no_such_allocation(const std::string& reason, std::source_location where) {
  return Error(Errc::corrupt, fmt::format("an IPC handle cannot be opened: {}", reason),
               "send the handle from ipc_handle and the size from describe, and keep the allocation and its process "
               "alive until every process that opened it has closed it; slabs have no such condition",
               where);
}

Error own_allocation(std::source_location where) {
  return Error(Errc::invalid_argument, "an IPC handle was opened in the process that made it",
               "use the address itself in this process", where);
}

}  // namespace drover::device
