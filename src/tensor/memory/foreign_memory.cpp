#include "tensor/memory/foreign_memory.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "drover/device/backend.hpp"
#include "ipc/ledger/slab_layout.hpp"

namespace drover::tensor {
namespace {

constexpr std::uint64_t kHandleMagic = 0x454c'444e'4148'5244;  // "DRHANDLE"

struct HandleNote {
  std::uint64_t magic;
  std::uint64_t base;  // in the process that allocated it
  std::uint64_t size;
  std::uint64_t buffer_id;
  std::int64_t pid;
  IpcHandle handle;
};
static_assert(sizeof(HandleNote) == 104);

HandleNote read_note(const Fd& file, std::uint64_t slab_bytes) {
  HandleNote note{};
  const bool is_note = check_memory_file(file) == sizeof(note);
  if (is_note) std::memcpy(&note, Mapping::shared(file, sizeof(note)).data(), sizeof(note));
  if (is_note && note.magic == kHandleMagic && note.size > 0 && note.size <= slab_bytes) return note;
  throw Error(Errc::corrupt, "a slab that is shared by a handle has an invalid handle file",
              "use the same version of drover in all processes of a session");
}

Error memory_gone(std::int64_t pid, const std::string& reason) {
  return Error(Errc::peer_lost,
               fmt::format("cannot open memory that a library of process {} allocated: {}", pid, reason),
               "import it without by_reference, or copy it, if it must outlive that process");
}

bool is_gone(std::int64_t pid) { return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH; }

// Pids are reused, buffer ids are not.
DevicePtr own_address(const Device& device, const HandleNote& note) {
  const PointerInfo info = device.describe({note.base});
  const bool is_same = info.is_device && info.base.address == note.base && info.buffer_id == note.buffer_id;
  if (!is_same) throw memory_gone(note.pid, "it was freed");
  return info.base;
}

}  // namespace

ForeignMemory foreign_file(const Fd& file, std::uint64_t bytes) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) throw_errno("fstat", fmt::format("descriptor {}", file.get()));
  if (!S_ISREG(status.st_mode) || bytes == 0 || std::cmp_less(status.st_size, bytes)) {
    throw Error(Errc::invalid_argument,
                fmt::format("descriptor {} is not a file with {}", file.get(), format_bytes(bytes)),
                "pass the file of the shared memory, and at most its size");
  }
  return {.place = Place::cpu(),
          .base = {status.st_dev},
          .size = bytes,
          .buffer_id = status.st_ino,
          .form = SlabForm::file};
}

Fd make_handle_file(const Device& device, const ForeignMemory& memory) {
  const HandleNote note{.magic = kHandleMagic,
                        .base = memory.base.address,
                        .size = memory.size,
                        .buffer_id = memory.buffer_id,
                        .pid = ::getpid(),
                        .handle = device.ipc_handle(memory.base)};
  Fd file = make_memory_file("drover handle", sizeof(note));
  std::memcpy(Mapping::shared(file, sizeof(note)).data(), &note, sizeof(note));
  return file;
}

// A driver may still open memory of a dead process, but there is no guarantee.
HandleMemory open_handle_file(const Place& place, const Fd& file, std::uint64_t bytes) {
  const HandleNote note = read_note(file, bytes);
  Device& device = backend_of(place.backend).open(place.index);
  if (note.pid == ::getpid()) return {.opened = nullptr, .address = own_address(device, note)};
  if (is_gone(note.pid)) throw memory_gone(note.pid, "that process is gone");
  try {
    return {.opened = device.open_ipc(note.handle, note.size), .address = {}};
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
    throw memory_gone(note.pid, error.message());
  }
}

}  // namespace drover::tensor
