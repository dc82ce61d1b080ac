#include "device/host/backend.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "base/config.hpp"
#include "device/fork_guard.hpp"
#include "device/host/census.hpp"
#include "device/host/device.hpp"
#include "device/host/memory.hpp"
#include "device/timelines.hpp"
#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"

namespace drover::device::host {
namespace {

constexpr std::int64_t kMostDevices = 64;

std::uint64_t physical_memory() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

int device_count() {
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  const auto fallback = std::clamp<std::int64_t>(cores / 2, 2, kMostDevices);
  return static_cast<int>(environment_number("DROVER_HOST_DEVICES", fallback, 1, kMostDevices));
}

std::uint64_t mix(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;  // FNV-1a
  return hash;
}

// Equal in every process of the same machine, user and group, and different otherwise.
Uuid make_uuid(int index) {
  std::string machine;
  std::getline(std::ifstream("/etc/machine-id"), machine);
  std::uint64_t hash = mix(0xcbf29ce484222325, machine);
  hash = mix(hash, std::to_string(::getuid()));
  hash = mix(hash, environment("DROVER_HOST_GROUP").value_or(""));
  Uuid uuid{{0xd0, 0x7e, 0x40, 0x57}};  // makes an emulated device recognisable
  for (std::size_t i = 0; i < 8; ++i) uuid.bytes.at(4 + i) = static_cast<std::uint8_t>(hash >> (8 * i));
  uuid.bytes.back() = static_cast<std::uint8_t>(index);
  return uuid;
}

DeviceInfo make_info(int index, std::uint64_t capacity) {
  DeviceInfo info;
  info.backend = BackendKind::host;
  info.index = index;
  info.uuid = make_uuid(index);
  info.name = "Emulated GPU";
  info.memory_total = capacity;
  return info;
}

[[noreturn]] void throw_full(const DeviceInfo& info, std::size_t bytes, std::uint64_t used) {
  throw Error(Errc::device_memory,
              fmt::format("{} has too little memory for {} in process {}: {} of {} are in use", device_id(info),
                          format_bytes(bytes), ::getpid(), format_bytes(used), format_bytes(info.memory_total)),
              "free memory, ask for less, or give the emulated devices more with DROVER_HOST_MEMORY");
}

}  // namespace

HostBackend::HostBackend()
    : latency_(environment_number("DROVER_HOST_LATENCY", 0, 0, 1'000'000)), has_timelines_(timelines_allowed()) {
  const int count = device_count();
  const auto share = physical_memory() / 2 / static_cast<std::uint64_t>(count);
  const auto capacity = environment_bytes("DROVER_HOST_MEMORY", share / kMiB * kMiB);
  for (int index = 0; index < count; ++index) infos_.push_back(make_info(index, capacity));
  const MutexLock lock(mutex_);
  opened_.resize(infos_.size());
  private_bytes_.resize(infos_.size());
}

HostBackend::~HostBackend() = default;

const DeviceInfo& HostBackend::info(int device) const {
  if (device < 0 || static_cast<std::size_t>(device) >= infos_.size()) {
    throw Error(
        Errc::not_found,
        fmt::format("there is no device host:{}; this process sees host:0 to host:{}", device, infos_.size() - 1),
        "use one of those, or set DROVER_HOST_DEVICES to have more");
  }
  return infos_[static_cast<std::size_t>(device)];
}

MemoryInfo HostBackend::memory_info(int device) const {
  fork_guard::check();
  const DeviceInfo& about = info(device);
  std::uint64_t used = slab_bytes_in_use(about.uuid);
  const MutexLock lock(mutex_);
  used += private_bytes_[static_cast<std::size_t>(device)];
  return {.total = about.memory_total, .free = about.memory_total - std::min(used, about.memory_total)};
}

Device& HostBackend::open(int device) {
  fork_guard::check();
  const DeviceInfo& about = info(device);
  fork_guard::arm();
  const MutexLock lock(mutex_);
  auto& opened = opened_[static_cast<std::size_t>(device)];
  if (opened == nullptr) opened = std::make_unique<HostDevice>(*this, about);
  return *opened;
}

std::size_t HostBackend::slab_granularity(int device) const {
  static_cast<void>(info(device));
  return 2 * kMiB;  // as on today's GPUs, so that programs see the same rounding
}

std::unique_ptr<Slab> HostBackend::create_slab(int device, std::size_t bytes) {
  fork_guard::check();
  require(bytes > 0, "cannot create a slab of 0 bytes");
  const DeviceInfo& about = info(device);
  const auto granularity = slab_granularity(device);
  const MemoryInfo now = memory_info(device);
  if (bytes > now.free) throw_full(about, bytes, now.used());
  const auto rounded = (bytes + granularity - 1) / granularity * granularity;
  if (rounded > now.free) throw_full(about, rounded, now.used());
  return std::make_unique<HostSlab>(*this, device, make_memory_file(slab_label(about.uuid), rounded), rounded);
}

std::unique_ptr<Slab> HostBackend::import_slab(int device, const Fd& fd, std::size_t bytes) {
  fork_guard::check();
  const DeviceInfo& about = info(device);
  const std::size_t present = check_memory_file(fd);
  if (!is_slab_of(fd, about.uuid)) {
    throw Error(
        Errc::corrupt,
        fmt::format("file descriptor {} is not a slab of {} ({})", fd.get(), device_id(about), to_string(about.uuid)),
        "import a slab on the device with the UUID its maker reported, in the same DROVER_HOST_GROUP");
  }
  if (bytes == 0 || bytes != present) {
    throw Error(Errc::corrupt, fmt::format("cannot import a slab announced with {} bytes: it has {}", bytes, present),
                "send the slab's size() along with its descriptor");
  }
  return std::make_unique<HostSlab>(*this, device, fd.duplicate(), present);
}

void HostBackend::check_range(DevicePtr begin, std::size_t bytes, const char* use) const {
  if (bytes == 0 || memory_.contains(begin.address, bytes)) return;
  throw Error(Errc::invalid_argument,
              fmt::format("{} of {} bytes at {:#x} reaches outside any live memory of an emulated device", use, bytes,
                          begin.address),
              "check offset and length, and that the memory has not been freed");
}

void HostBackend::check_word(const TimelineWord& word) const {
  if (!has_timelines_) {
    throw Error(Errc::unsupported, "the emulated devices have no stream memory operations", kWithoutTimelines);
  }
  if (is_registered(&word, sizeof(word))) return;
  throw Error(Errc::invalid_argument,
              fmt::format("the timeline word at {} is not in registered memory", static_cast<const void*>(&word)),
              "call Device::register_host on the memory that holds it first");
}

bool HostBackend::is_registered(const void* begin, std::size_t bytes) const {
  return registered_.contains(reinterpret_cast<std::uintptr_t>(begin), bytes);
}

std::shared_ptr<WorkQueue> HostBackend::start_queue(int device) {
  auto queue = WorkQueue::start(latency_);
  const MutexLock lock(mutex_);
  queues_.remove_if([](const KnownQueue& known) { return known.queue.expired(); });
  queues_.push_back({device, queue});
  return queue;
}

std::shared_ptr<WorkQueue> HostBackend::find_queue(int device, std::uintptr_t native) const {
  {
    const MutexLock lock(mutex_);
    for (const auto& known : queues_) {
      auto queue = known.device == device ? known.queue.lock() : nullptr;
      if (queue != nullptr && queue->native() == native && !queue->is_closed()) return queue;
    }
  }
  throw Error(Errc::invalid_argument, fmt::format("host:{} has no stream {:#x}", device, native),
              "pass Stream::native of a live stream of the same device");
}

// Allocates nothing. The iterator stays valid while the lock is released: only queues without an owner are removed.
void HostBackend::drain(int device) noexcept {
  mutex_.lock();
  for (const auto& known : queues_) {
    const auto queue = known.device == device ? known.queue.lock() : nullptr;
    if (queue == nullptr) continue;
    mutex_.unlock();
    static_cast<void>(queue->wait(Deadline::never()));
    mutex_.lock();
  }
  mutex_.unlock();
}

void HostBackend::reserve(int device, std::size_t bytes) {
  const DeviceInfo& about = info(device);
  const std::uint64_t used_by_slabs = slab_bytes_in_use(about.uuid);
  const MutexLock lock(mutex_);
  auto& used = private_bytes_[static_cast<std::size_t>(device)];
  const std::uint64_t taken = used + used_by_slabs;
  if (taken > about.memory_total || bytes > about.memory_total - taken) throw_full(about, bytes, taken);
  used += bytes;
}

void HostBackend::release(int device, std::size_t bytes) noexcept {
  const MutexLock lock(mutex_);
  private_bytes_[static_cast<std::size_t>(device)] -= bytes;
}

}  // namespace drover::device::host
