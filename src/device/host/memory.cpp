#include "device/host/memory.hpp"

#include <fmt/format.h>

#include "device/fork_guard.hpp"
#include "drover/base/error.hpp"

namespace drover::device::host {
namespace {

std::uint64_t address_of(const std::byte* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

HostMemory::HostMemory(HostBackend& backend, int device, Mapping mapping, Fd&& file, RangeNote::Kind kind)
    : DeviceMemory({address_of(mapping.data())}, mapping.size()),
      backend_(backend),
      device_(device),
      live_(backend.counters().memory),
      file_(std::move(file)),
      mapping_(std::move(mapping)) {
  if (!backend_.memory().add(ptr().address, size(), {.kind = kind, .device = device, .file = file_.get()})) {
    throw Error(Errc::internal, fmt::format("the system mapped memory twice at {:#x}", ptr().address));
  }
}

HostMemory::~HostMemory() {
  if (fork_guard::is_forked_child()) return;
  backend_.drain(device_);
  backend_.memory().remove(ptr().address);
}

Reservation::~Reservation() {
  if (!fork_guard::is_forked_child()) backend_.release(device_, bytes_);
}

HostMemoryRegistration::HostMemoryRegistration(HostBackend& backend, int device, std::span<std::byte> memory)
    : backend_(backend), device_(device), live_(backend.counters().registrations), begin_(address_of(memory.data())) {
  require(!memory.empty(), "host memory of 0 bytes cannot be registered");
  if (!backend_.registered().add(begin_, memory.size())) {
    throw Error(Errc::busy,
                fmt::format("host memory of {} bytes at {:#x} overlaps memory that is registered already",
                            memory.size(), begin_),
                "register each piece of memory once and keep its registration");
  }
}

HostMemoryRegistration::~HostMemoryRegistration() {
  if (fork_guard::is_forked_child()) return;
  backend_.drain(device_);
  backend_.registered().remove(begin_);
}

}  // namespace drover::device::host
