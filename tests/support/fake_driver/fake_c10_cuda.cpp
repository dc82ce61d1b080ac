// A stand-in for torch's caching allocator: takes segments from cudaMalloc, cuts them into arrays, and reuses freed
// ones at once. Holds its mutex while it calls cudaMalloc, as torch does.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>

// NOLINTBEGIN(readability-identifier-naming): the names of the CUDA runtime
extern "C" {
int cudaMalloc(void** ptr, std::size_t bytes);
int cudaFree(void* ptr);
int cudaGetDevice(int* device);
int cudaSetDevice(int device);
}
// NOLINTEND(readability-identifier-naming)

namespace {

constexpr std::uint64_t kSegment = 2 << 20;
constexpr std::uint64_t kUnit = 512;

std::mutex mutex;
std::map<std::uint64_t, std::uint64_t> segments;                // sizes by address
std::map<std::uint64_t, std::uint64_t> used;                    // likewise, of arrays
std::map<std::pair<int, std::uint64_t>, std::uint64_t> unused;  // likewise, of free pieces by device

std::uint64_t take(int device, std::uint64_t bytes) {
  for (auto at = unused.begin(); at != unused.end(); ++at) {
    const auto [key, size] = *at;
    if (key.first != device || size < bytes) continue;
    unused.erase(at);
    if (size > bytes) unused[{device, key.second + bytes}] = size - bytes;
    used[key.second] = bytes;
    return key.second;
  }
  return 0;
}

void merge() {
  for (auto at = unused.begin(); at != unused.end();) {
    const auto next = std::next(at);
    const bool is_neighbour = next != unused.end() && next->first.first == at->first.first &&
                              next->first.second == at->first.second + at->second &&
                              !segments.contains(next->first.second);
    if (!is_neighbour) {
      ++at;
      continue;
    }
    at->second += next->second;
    unused.erase(next);
  }
}

void free_segments() {
  merge();
  for (auto at = unused.begin(); at != unused.end();) {
    const auto segment = segments.find(at->first.second);
    if (segment == segments.end() || segment->second != at->second) {
      ++at;
      continue;
    }
    static_cast<void>(cudaFree(reinterpret_cast<void*>(segment->first)));  // NOLINT(performance-no-int-to-ptr)
    segments.erase(segment);
    at = unused.erase(at);
  }
}

}  // namespace

extern "C" {

/// An array on a device; 0 if there is no memory.
std::uint64_t cache_allocate(std::uint64_t bytes, int device) {
  const std::scoped_lock lock(mutex);
  bytes = (bytes + kUnit - 1) / kUnit * kUnit;
  if (const auto found = take(device, bytes); found != 0) return found;
  const std::uint64_t size = std::max(bytes, kSegment);
  int before = 0;
  static_cast<void>(cudaGetDevice(&before));
  static_cast<void>(cudaSetDevice(device));
  void* made = nullptr;
  int error = cudaMalloc(&made, size);
  if (error != 0) {
    free_segments();
    error = cudaMalloc(&made, size);
  }
  static_cast<void>(cudaSetDevice(before));
  if (error != 0) return 0;
  segments[reinterpret_cast<std::uint64_t>(made)] = size;
  unused[{device, reinterpret_cast<std::uint64_t>(made)}] = size;
  return take(device, bytes);
}

/// Frees an array for the next ones on its device.
void cache_free(std::uint64_t address, int device) {
  const std::scoped_lock lock(mutex);
  const auto found = used.find(address);
  if (found == used.end()) return;
  unused[{device, address}] = found->second;
  used.erase(found);
  merge();
}

/// Frees the segments without arrays.
void cache_empty() {
  const std::scoped_lock lock(mutex);
  free_segments();
}

/// Bytes of segments.
std::uint64_t cache_reserved() {
  const std::scoped_lock lock(mutex);
  std::uint64_t bytes = 0;
  for (const auto& [address, size] : segments) bytes += size;
  return bytes;
}
}
