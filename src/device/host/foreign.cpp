#include "device/host/foreign.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "device/foreign.hpp"
#include "device/host/memory.hpp"
#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"

namespace drover::device::host {
namespace {

// The content of a handle. The inode detects a descriptor that has been reused.
struct HandleContent {
  std::uint64_t magic = kMagic;
  std::uint64_t inode = 0;
  std::int32_t process = 0;
  std::int32_t file = 0;
  std::int32_t device = 0;
  std::int32_t unused[9] = {};

  static constexpr std::uint64_t kMagic = 0x1bc0'd70f'e20f'4057;
};
static_assert(sizeof(HandleContent) == sizeof(IpcHandle));

std::uint64_t inode_of(int file) {
  struct stat status{};
  if (sys::call("fstat", ::fstat, file, &status) != 0) throw_errno("fstat", "the file of an allocation");
  return status.st_ino;
}

RangeNote note_at(const HostBackend& backend, DevicePtr base) {
  const auto range = backend.memory().find(base.address);
  if (!range) throw Error(Errc::invalid_argument, "device memory was freed while it was being shared");
  return range->note;
}

}  // namespace

PointerInfo describe_pointer(const HostBackend& backend, DevicePtr ptr) {
  const auto range = backend.memory().find(ptr.address);
  if (!range) return {};
  const bool is_slab = range->note.kind == RangeNote::Kind::slab;
  PointerInfo info;
  info.is_device = true;
  info.device = range->note.device;
  info.base = {range->begin};
  info.size = range->bytes;
  info.buffer_id = range->note.number;
  info.can_legacy_ipc = range->note.kind == RangeNote::Kind::allocation;
  info.is_vmm = is_slab;
  info.can_retain = is_slab;
  return info;
}

Fd duplicate_file(const HostBackend& backend, DevicePtr base) {
  const int file = note_at(backend, base).file;
  Fd copy(sys::call("fcntl", [file] { return ::fcntl(file, F_DUPFD_CLOEXEC, 0); }));
  if (!copy.is_open()) throw_errno("fcntl(F_DUPFD_CLOEXEC)", "the file of a slab");
  return copy;
}

IpcHandle make_handle(const HostBackend& backend, DevicePtr base) {
  const RangeNote note = note_at(backend, base);
  HandleContent content;
  content.inode = inode_of(note.file);
  content.process = ::getpid();
  content.file = note.file;
  content.device = note.device;
  return std::bit_cast<IpcHandle>(content);
}

Fd open_handle(const IpcHandle& handle, int device, std::size_t bytes) {
  const auto content = std::bit_cast<HandleContent>(handle);
  if (content.magic != HandleContent::kMagic) throw no_such_allocation("it is not a handle of an emulated device");
  if (content.process == ::getpid()) throw own_allocation();
  if (content.device != device) {
    throw no_such_allocation(
        fmt::format("it names memory of host:{} and was opened on host:{}", content.device, device));
  }
  const std::string path = fmt::format("/proc/{}/fd/{}", content.process, content.file);
  Fd file(sys::call("open", [&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC); }));
  if (!file.is_open() || inode_of(file.get()) != content.inode) {
    throw no_such_allocation(fmt::format("process {} has no such allocation", content.process));
  }
  const std::size_t present = check_memory_file(file);
  if (bytes != 0 && bytes <= present) return file;
  throw no_such_allocation(fmt::format("it was announced with {} bytes and has {}", bytes, present));
}

}  // namespace drover::device::host
