#include "device/host/device.hpp"

#include <cstring>

#include "device/foreign.hpp"
#include "device/fork_guard.hpp"
#include "device/host/event.hpp"
#include "device/host/foreign.hpp"
#include "device/host/memory.hpp"
#include "device/host/module.hpp"
#include "device/host/stream.hpp"
#include "device/own.hpp"
#include "drover/base/error.hpp"
#include "drover/base/trace.hpp"

namespace drover::device::host {

std::unique_ptr<DeviceMemory> HostDevice::allocate(std::size_t bytes) {
  fork_guard::check();
  require(bytes > 0, "cannot allocate 0 bytes of device memory");
  const TraceSpan span("device.allocate", bytes);
  return std::make_unique<HostAllocation>(backend_, info_.index, bytes);
}

std::unique_ptr<DeviceMemory> HostDevice::map(const Slab& slab) {
  fork_guard::check();
  const auto& mine = own<const HostSlab>(slab);
  require(mine.device() == info_.index, "cannot map a slab on a device other than its own",
          "open the slab's own device and map it there");
  const TraceSpan span("device.map", slab.size());
  return std::make_unique<HostMemory>(backend_, info_.index, mine.file().duplicate(), mine.size(),
                                      RangeNote::Kind::slab);
}

PointerInfo HostDevice::describe(DevicePtr ptr) const {
  fork_guard::check();
  return describe_pointer(backend_, ptr);
}

IpcHandle HostDevice::ipc_handle(DevicePtr base) const {
  fork_guard::check();
  require_ipc(describe(base), base);
  return make_handle(backend_, base);
}

std::unique_ptr<DeviceMemory> HostDevice::open_ipc(const IpcHandle& handle, std::size_t size) {
  fork_guard::check();
  const TraceSpan span("device.open_ipc", size);
  return std::make_unique<HostMemory>(backend_, info_.index, open_handle(handle, info_.index, size), size,
                                      RangeNote::Kind::opened);
}

std::unique_ptr<Slab> HostDevice::retain_slab(DevicePtr ptr) {
  fork_guard::check();
  const PointerInfo about = describe(ptr);
  require_retainable(about, ptr);
  return std::make_unique<HostSlab>(backend_, about.device, duplicate_file(backend_, about.base), about.size);
}

std::unique_ptr<HostRegistration> HostDevice::register_host(std::span<std::byte> memory) {
  fork_guard::check();
  const TraceSpan span("device.register", memory.size());
  return std::make_unique<HostMemoryRegistration>(backend_, info_.index, memory);
}

std::unique_ptr<Stream> HostDevice::create_stream() {
  fork_guard::check();
  return std::make_unique<HostStream>(backend_, backend_.start_queue(info_.index), Ownership::owned);
}

std::unique_ptr<Stream> HostDevice::borrow_stream(std::uintptr_t native) {
  fork_guard::check();
  return std::make_unique<HostStream>(backend_, backend_.find_queue(info_.index, native), Ownership::borrowed);
}

bool HostDevice::can_copy_directly(const Device& other) const {
  return dynamic_cast<const HostDevice*>(&other) != nullptr;  // all memory is the machine's
}

std::unique_ptr<StreamEvent> HostDevice::create_event() {
  fork_guard::check();
  return std::make_unique<HostEvent>(backend_.counters());
}

std::unique_ptr<Module> HostDevice::load_module(std::span<const std::byte> image) {
  fork_guard::check();
  return std::make_unique<HostModule>(backend_.counters(), image);
}

void HostDevice::upload(DevicePtr to, const void* from, std::size_t bytes) {
  fork_guard::check();
  check_host(from, bytes);
  backend_.check_range(to, bytes, "an upload");
  if (bytes == 0) return;
  const TraceSpan span("device.upload", bytes);
  std::memcpy(pointer(to), from, bytes);
}

void HostDevice::download(void* to, DevicePtr from, std::size_t bytes) {
  fork_guard::check();
  check_host(to, bytes);
  backend_.check_range(from, bytes, "a download");
  if (bytes == 0) return;
  const TraceSpan span("device.download", bytes);
  std::memcpy(to, pointer(from), bytes);
}

void HostDevice::copy(DevicePtr to, DevicePtr from, std::size_t bytes) {
  fork_guard::check();
  backend_.check_range(to, bytes, "the target of a copy");
  backend_.check_range(from, bytes, "the source of a copy");
  if (bytes == 0) return;
  const TraceSpan span("device.copy", bytes);
  std::memmove(pointer(to), pointer(from), bytes);
}

}  // namespace drover::device::host
