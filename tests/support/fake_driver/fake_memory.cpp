#include "support/fake_driver/fake_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "device/cuda/api_types.hpp"
#include "support/fake_driver/fake_settings.hpp"

namespace drover::test::fake {
namespace {

using namespace drover::device::cuda;

constexpr std::size_t kGranularity = std::size_t{2} << 20U;

struct Piece {
  std::size_t bytes = 0;
  MemoryKind kind{};
  int device = 0;
  int file = -1;
  std::uint64_t number = 0;
  std::uint64_t reservation = 0;  // result of cuMemAddressReserve, for virtual memory
  std::size_t reserved = 0;
};

struct Physical {
  std::size_t bytes = 0;
  int device = 0;
  int file = -1;
  int references = 1;
  bool is_shareable = true;
};

std::mutex mutex;
std::map<CUdeviceptr, Piece> pieces;
std::map<CUdeviceptr, std::size_t> reservations;
std::map<CUmemHandle, Physical> physicals;
std::uint64_t last_number = 0;
thread_local CUcontext current = nullptr;
thread_local int capture_mode = 0;

constexpr CUresult kCaptureUnsupported = 900;

// The result of calls that invalidate a capture of another thread, unless the mode of this thread prevents that.
CUresult if_not_captured() {
  return is_set("FAKE_CAPTURE") && capture_mode != kCaptureRelaxed ? kCaptureUnsupported : kSuccess;
}

int current_device() { return static_cast<int>(reinterpret_cast<std::uintptr_t>(current)) - 1; }
void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
CUdeviceptr address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// The name of a file tells on which device its memory lies, also to processes that import it.
constexpr std::string_view kFileName = "fake-cuda-";

int make_file(std::size_t bytes, int device) {
  const int file = ::memfd_create((std::string(kFileName) + std::to_string(device)).c_str(), MFD_CLOEXEC);
  return file >= 0 && ::ftruncate(file, static_cast<off_t>(bytes)) == 0 ? file : -1;
}

int device_of(int file) {
  std::array<char, 64> name{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  if (::readlink(link.c_str(), name.data(), name.size() - 1) < 0) return 0;
  const char* const found = std::strstr(name.data(), kFileName.data());
  return found == nullptr ? 0 : static_cast<int>(std::strtol(found + kFileName.size(), nullptr, 10));
}

std::uint64_t inode_of(int file) {
  struct stat status{};
  return ::fstat(file, &status) == 0 ? status.st_ino : 0;
}

std::size_t size_of(int file) {
  struct stat status{};
  return ::fstat(file, &status) == 0 ? static_cast<std::size_t>(status.st_size) : 0;
}

CUdeviceptr map_file(int file, std::size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? 0 : address(memory);
}

// The piece around an address.
std::map<CUdeviceptr, Piece>::iterator piece_at(CUdeviceptr where) {
  const auto next = pieces.upper_bound(where);
  if (next == pieces.begin()) return pieces.end();
  const auto found = std::prev(next);
  return where - found->first < found->second.bytes ? found : pieces.end();
}

CUresult allocate(CUdeviceptr* where, std::size_t bytes, MemoryKind kind) {
  if (bytes > kGpuMemory) return kOutOfMemory;
  const std::lock_guard lock(mutex);
  const int device = current == nullptr ? 0 : current_device();
  const int file = make_file(bytes, device);
  *where = map_file(file, bytes);
  pieces[*where] = {.bytes = bytes,
                    .kind = kind,
                    .device = device,
                    .file = file,
                    .number = ++last_number,
                    .reservation = 0,
                    .reserved = 0};
  return kSuccess;
}

CUresult give_back(CUdeviceptr where, MemoryKind kind) {
  const std::lock_guard lock(mutex);
  const auto found = pieces.find(where);
  if (found == pieces.end() || found->second.kind != kind) return kInvalidValue;
  if (const CUresult refusal = if_not_captured(); refusal != kSuccess) return refusal;
  ::munmap(pointer(where), found->second.bytes);
  ::close(found->second.file);
  pieces.erase(found);
  return kSuccess;
}

CUresult ctx_retain(CUcontext* context, CUdevice device) {
  *context = reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 1);
  return kSuccess;
}
CUresult ctx_release(CUdevice /*device*/) { return kSuccess; }
CUresult ctx_get(CUcontext* context) {
  *context = current;
  return kSuccess;
}
CUresult ctx_set(CUcontext context) {
  current = context;
  return kSuccess;
}
CUresult ctx_synchronize() { return kSuccess; }
CUresult exchange_capture_mode(int* mode) {
  std::swap(*mode, capture_mode);
  return kSuccess;
}
CUresult device_attribute(int* value, int /*attribute*/, CUdevice /*device*/) {
  *value = 0;  // neither stream memory operations nor RDMA
  return kSuccess;
}
CUresult can_access_peer(int* can, CUdevice /*device*/, CUdevice /*peer*/) {
  *can = is_set("FAKE_PEERS") ? 1 : 0;
  return kSuccess;
}

CUresult mem_alloc(CUdeviceptr* where, std::size_t bytes) {
  const CUresult refusal = if_not_captured();
  return refusal == kSuccess ? allocate(where, bytes, MemoryKind::plain) : refusal;
}
CUresult mem_free(CUdeviceptr where) { return give_back(where, MemoryKind::plain); }

CUresult copy_up(CUdeviceptr to, const void* from, std::size_t bytes, CUstream /*stream*/) {
  std::memcpy(pointer(to), from, bytes);
  return kSuccess;
}
CUresult copy_down(void* to, CUdeviceptr from, std::size_t bytes, CUstream /*stream*/) {
  std::memcpy(to, pointer(from), bytes);
  return kSuccess;
}
CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream /*stream*/) {
  std::memmove(pointer(to), pointer(from), bytes);
  return kSuccess;
}
CUresult fill(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream /*stream*/) {
  std::memset(pointer(to), value, bytes);
  return kSuccess;
}

// A stream is an allocated copy of its context, which is the number of the device.
CUresult stream_create(CUstream* stream, unsigned /*flags*/) {
  *stream = reinterpret_cast<CUstream>(new CUcontext(current));
  return kSuccess;
}
CUresult stream_destroy(CUstream stream) {
  delete reinterpret_cast<CUcontext*>(stream);
  return kSuccess;
}
CUresult stream_done(CUstream /*stream*/) { return if_not_captured(); }
// All work is done at once, so there is nothing to record.
CUresult event_create(CUevent* event, unsigned /*flags*/) {
  *event = reinterpret_cast<CUevent>(new int());
  return kSuccess;
}
CUresult event_destroy(CUevent event) {
  delete reinterpret_cast<int*>(event);
  return kSuccess;
}
CUresult event_record(CUevent /*event*/, CUstream /*stream*/) { return kSuccess; }
CUresult stream_wait_event(CUstream /*stream*/, CUevent /*event*/, unsigned /*flags*/) { return kSuccess; }
CUresult stream_is_capturing(CUstream /*stream*/, int* status) {
  *status = number("FAKE_CAPTURE", 0) == 2 ? 1 : kCaptureNone;
  return kSuccess;
}
CUresult stream_context(CUstream stream, CUcontext* context) {
  *context = *reinterpret_cast<CUcontext*>(stream);
  return kSuccess;
}

CUresult granularity(std::size_t* bytes, const CUmemAllocationProp* /*properties*/, int /*option*/) {
  *bytes = kGranularity;
  return kSuccess;
}
CUresult physical_create(CUmemHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                         unsigned long long /*flags*/) {
  const std::lock_guard lock(mutex);
  std::size_t used = bytes;
  for (const auto& [other, physical] : physicals) {
    if (physical.device == properties->location.id) used += physical.bytes;
  }
  if (bytes > kGpuMemory || used > kGpuMemory) return kOutOfMemory;
  *handle = ++last_number;
  physicals[*handle] = {.bytes = bytes,
                        .device = properties->location.id,
                        .file = make_file(bytes, properties->location.id),
                        .references = 1,
                        .is_shareable = (properties->requested_handle_types & kHandlePosixFd) != 0};
  return kSuccess;
}
void drop(CUmemHandle handle) {
  const auto found = physicals.find(handle);
  if (--found->second.references > 0) return;
  ::close(found->second.file);
  physicals.erase(found);
}
CUresult physical_release(CUmemHandle handle) {
  const std::lock_guard lock(mutex);
  if (!physicals.contains(handle)) return kInvalidValue;
  drop(handle);
  return kSuccess;
}
CUresult physical_properties(CUmemAllocationProp* properties, CUmemHandle handle) {
  const std::lock_guard lock(mutex);
  *properties = {};
  properties->location = {.type = kLocationDevice, .id = physicals.at(handle).device};
  return kSuccess;
}
CUresult physical_export(void* file, CUmemHandle handle, int /*type*/, unsigned long long /*flags*/) {
  const std::lock_guard lock(mutex);
  if (!physicals.at(handle).is_shareable) return kInvalidValue;
  const int made = ::dup(physicals.at(handle).file);
  std::memcpy(file, &made, sizeof(made));
  return kSuccess;
}
CUresult physical_import(CUmemHandle* handle, void* file, int /*type*/) {
  const std::lock_guard lock(mutex);
  const int number = static_cast<int>(reinterpret_cast<std::intptr_t>(file));
  *handle = ++last_number;
  physicals[*handle] = {.bytes = size_of(number),
                        .device = device_of(number),
                        .file = ::dup(number),
                        .references = 1,
                        .is_shareable = true};
  return kSuccess;
}

CUresult reserve(CUdeviceptr* where, std::size_t bytes, std::size_t /*alignment*/, CUdeviceptr /*hint*/,
                 unsigned long long /*flags*/) {
  const std::lock_guard lock(mutex);
  void* const memory = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *where = address(memory);
  reservations[*where] = bytes;
  return kSuccess;
}
CUresult unreserve(CUdeviceptr where, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  ::munmap(pointer(where), bytes);
  return reservations.erase(where) == 1 ? kSuccess : kInvalidValue;
}
CUresult map_physical(CUdeviceptr where, std::size_t bytes, std::size_t /*offset*/, CUmemHandle handle,
                      unsigned long long /*flags*/) {
  const std::lock_guard lock(mutex);
  Physical& physical = physicals.at(handle);
  if (physical.bytes != bytes) return kInvalidValue;
  ::mmap(pointer(where), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, physical.file, 0);
  ++physical.references;
  const auto reservation = std::prev(reservations.upper_bound(where));
  pieces[where] = {.bytes = bytes,
                   .kind = physical.is_shareable ? MemoryKind::virtual_memory : MemoryKind::virtual_not_shared,
                   .device = physical.device,
                   .file = -1,
                   .number = handle,
                   .reservation = reservation->first,
                   .reserved = reservation->second};
  return kSuccess;
}
CUresult unmap_physical(CUdeviceptr where, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  ::mmap(pointer(where), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  drop(pieces.at(where).number);
  pieces.erase(where);
  return kSuccess;
}
CUresult set_access(CUdeviceptr /*where*/, std::size_t /*bytes*/, const CUmemAccessDesc* /*access*/,
                    std::size_t /*count*/) {
  return kSuccess;
}
CUresult physical_retain(CUmemHandle* handle, void* where) {
  const std::lock_guard lock(mutex);
  const auto found = piece_at(address(where));
  if (found == pieces.end() || !physicals.contains(found->second.number)) return kInvalidValue;
  ++physicals.at(*handle = found->second.number).references;
  return kSuccess;
}

// As the driver: with the width that each attribute has, and the reservation as the range of virtual memory.
CUresult pointer_attribute(void* data, int attribute, CUdeviceptr where) {
  const std::lock_guard lock(mutex);
  const auto found = piece_at(where);
  if (found == pieces.end()) return kInvalidValue;
  const auto& [begin, piece] = *found;
  const bool is_virtual = piece.reservation != 0;
  const auto write = [data](auto value) {
    std::memcpy(data, &value, sizeof(value));
    return kSuccess;
  };
  switch (attribute) {
    case kPointerMemoryType: return write(2U);
    case kPointerBufferId: return write(piece.number);
    case kPointerIsManaged: return write(piece.kind == MemoryKind::managed);
    case kPointerDeviceOrdinal: return write(piece.device);
    case kPointerIsLegacyIpcCapable: return write(piece.kind == MemoryKind::plain ? 1 : 0);
    case kPointerRangeStart: return write(is_virtual ? piece.reservation : begin);
    case kPointerRangeSize: return write(is_virtual ? piece.reserved : piece.bytes);
    case kPointerAllowedHandles: return write(piece.kind == MemoryKind::virtual_memory ? 1U : 0U);
    case kPointerPool: return write(piece.kind == MemoryKind::pool ? begin : 0);
    case kPointerMappingSize: return write(piece.bytes);
    case kPointerMappingBase: return write(begin);
    default: return kInvalidValue;
  }
}

struct Handle {
  std::uint64_t magic;
  std::uint64_t inode;
  int process;
  int file;
  char unused[40];
};
static_assert(sizeof(Handle) == sizeof(CUipcMemHandle));
constexpr std::uint64_t kMagic = 0xfa4e;

CUresult ipc_get(CUipcMemHandle* handle, CUdeviceptr where) {
  const std::lock_guard lock(mutex);
  const auto found = piece_at(where);
  if (found == pieces.end() || found->second.kind != MemoryKind::plain) return kInvalidValue;
  const Handle content{kMagic, inode_of(found->second.file), ::getpid(), found->second.file, {}};
  std::memcpy(handle, &content, sizeof(content));
  return kSuccess;
}
CUresult ipc_open(CUdeviceptr* where, CUipcMemHandle handle, unsigned flags) {
  Handle content{};
  std::memcpy(&content, &handle, sizeof(content));
  if (content.magic != kMagic || flags != kIpcLazyPeerAccess) return kInvalidValue;
  if (content.process == ::getpid()) return kInvalidContext;
  const auto path = "/proc/" + std::to_string(content.process) + "/fd/" + std::to_string(content.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0 || inode_of(file) != content.inode) {
    ::close(file);
    return kMapFailed;
  }
  const std::lock_guard lock(mutex);
  const std::size_t bytes = size_of(file);
  *where = map_file(file, bytes);
  pieces[*where] = {.bytes = bytes,
                    .kind = MemoryKind::opened,
                    .device = 0,
                    .file = file,
                    .number = ++last_number,
                    .reservation = 0,
                    .reserved = 0};
  return kSuccess;
}
CUresult ipc_close(CUdeviceptr where) { return give_back(where, MemoryKind::opened); }

struct Entry {
  const char* name;
  void* address;
};

template <class Function>
Entry entry(const char* name, Function* function) {
  return {name, reinterpret_cast<void*>(function)};
}

}  // namespace

void* memory_entry(const char* name) {
  static const auto known = std::to_array<Entry>({
      entry("cuDevicePrimaryCtxRetain", ctx_retain),
      entry("cuDevicePrimaryCtxRelease", ctx_release),
      entry("cuCtxGetCurrent", ctx_get),
      entry("cuCtxSetCurrent", ctx_set),
      entry("cuCtxSynchronize", ctx_synchronize),
      entry("cuThreadExchangeStreamCaptureMode", exchange_capture_mode),
      entry("cuDeviceGetAttribute", device_attribute),
      entry("cuDeviceCanAccessPeer", can_access_peer),
      entry("cuMemAlloc", mem_alloc),
      entry("cuMemFree", mem_free),
      entry("cuMemcpyHtoDAsync", copy_up),
      entry("cuMemcpyDtoHAsync", copy_down),
      entry("cuMemcpyAsync", copy),
      entry("cuMemsetD8Async", fill),
      entry("cuStreamCreate", stream_create),
      entry("cuStreamDestroy", stream_destroy),
      entry("cuStreamQuery", stream_done),
      entry("cuStreamSynchronize", stream_done),
      entry("cuStreamGetCtx", stream_context),
      entry("cuStreamIsCapturing", stream_is_capturing),
      entry("cuEventCreate", event_create),
      entry("cuEventDestroy", event_destroy),
      entry("cuEventRecord", event_record),
      entry("cuStreamWaitEvent", stream_wait_event),
      entry("cuMemGetAllocationGranularity", granularity),
      entry("cuMemCreate", physical_create),
      entry("cuMemRelease", physical_release),
      entry("cuMemGetAllocationPropertiesFromHandle", physical_properties),
      entry("cuMemExportToShareableHandle", physical_export),
      entry("cuMemImportFromShareableHandle", physical_import),
      entry("cuMemAddressReserve", reserve),
      entry("cuMemAddressFree", unreserve),
      entry("cuMemMap", map_physical),
      entry("cuMemUnmap", unmap_physical),
      entry("cuMemSetAccess", set_access),
      entry("cuMemRetainAllocationHandle", physical_retain),
      entry("cuPointerGetAttribute", pointer_attribute),
      entry("cuIpcGetMemHandle", ipc_get),
      entry("cuIpcOpenMemHandle", ipc_open),
      entry("cuIpcCloseMemHandle", ipc_close),
  });
  for (const Entry& candidate : known) {
    if (std::strcmp(candidate.name, name) == 0) return candidate.address;
  }
  return nullptr;
}

}  // namespace drover::test::fake

// For direct calls by the tests.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int cuThreadExchangeStreamCaptureMode(int* mode) {
  return drover::test::fake::exchange_capture_mode(mode);
}

// Allocates virtual memory as frameworks do: two pieces in one reservation; returns the second one.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" unsigned long long fake_allocate(int kind, std::size_t bytes) {
  using namespace drover::test::fake;
  using namespace drover::device::cuda;
  const auto wanted = static_cast<MemoryKind>(kind);
  CUdeviceptr where = 0;
  if (wanted == MemoryKind::plain || wanted == MemoryKind::pool || wanted == MemoryKind::managed) {
    return allocate(&where, bytes, wanted) == kSuccess ? where : 0;
  }
  CUmemAllocationProp properties{};
  properties.requested_handle_types = wanted == MemoryKind::virtual_memory ? kHandlePosixFd : 0;
  reserve(&where, 2 * bytes, 0, 0, 0);
  for (const CUdeviceptr begin : {where, where + bytes}) {
    CUmemHandle handle = 0;
    physical_create(&handle, bytes, &properties, 0);
    map_physical(begin, bytes, 0, handle, 0);
    physical_release(handle);
  }
  return where + bytes;
}
