#include "drover/tensor/slab_allocator.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <compare>
#include <deque>
#include <exception>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/base/mutex.hpp"
#include "drover/device/backend.hpp"
#include "drover/tensor/tensor.hpp"
#include "tensor/exchange/exported_blocks.hpp"
#include "tensor/memory/release_pause.hpp"
#include "tensor/tensor_access.hpp"

namespace drover {
namespace {

constexpr std::uint64_t kSmallest = 512;
constexpr std::uint64_t kShareOfDevice = 8;
// How long an allocation that found no memory waits for work that uses freed blocks.
constexpr std::chrono::seconds kPatience{10};

// Eight size classes for each power of two: similar sizes share cached blocks, and at most an eighth is wasted. None
// for a library that divides what it gets: its sizes recur.
std::uint64_t size_class(std::uint64_t bytes, bool is_divided) {
  const std::uint64_t step = is_divided ? kSmallest : std::max(std::bit_floor(bytes) / 8, kSmallest);
  return (bytes + step - 1) / step * step;
}

// Blocks of one kind are interchangeable.
struct Kind {
  int device = 0;
  std::uintptr_t stream = 0;
  std::uint64_t bytes = 0;
  auto operator<=>(const Kind&) const = default;
};

// One block, allocated or cached. Registered by its address for as long as it lives.
struct Piece {
  Piece(const Kind& what, Tensor memory, bool is_divided)
      : kind(what), tensor(std::move(memory)), entry(tensor::TensorAccess::storage(tensor), is_divided) {}

  const Kind kind;
  const Tensor tensor;
  const tensor::ExportedBlocks::Entry entry;
  std::vector<std::uintptr_t> other_streams;
  std::vector<std::unique_ptr<StreamEvent>> ends;  // of the work of its streams, once it is leaving
};
using Pieces = std::vector<std::unique_ptr<Piece>>;

// Whether only the allocator holds it, in this process and in others, and only its stream works on it.
bool is_reusable(const Piece& piece) noexcept {
  const auto& storage = tensor::TensorAccess::storage(piece.tensor);
  if (!piece.other_streams.empty() || storage.use_count() > 1) return false;
  try {
    return storage->is_ready() && ipc::OpenLedger::is_only(storage->block().lease());
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
    return false;
  }
}

// Records the ends of the work its streams were given so far. False if a stream cannot record, e.g. because it was
// destroyed: then the end is unknown.
bool mark_ends(Piece& piece) noexcept {
  try {
    Device& device = backend_of(piece.tensor.place().backend).open(piece.kind.device);
    auto streams = piece.other_streams;
    streams.push_back(piece.kind.stream);
    for (const auto stream : streams) {
      const auto borrowed = device.borrow_stream(stream);
      require(!borrowed->is_capturing(), "its stream captures a graph", "free memory before or after the capture");
      piece.ends.push_back(device.create_event());
      borrowed->record(*piece.ends.back());
    }
    return true;
  } catch (const std::exception& error) {
    log(LogLevel::warn, fmt::format("{} at {} cannot be released before the allocator is destroyed: {}",
                                    format_bytes(piece.kind.bytes), to_string(piece.tensor.place()), error.what()));
    return false;
  }
}

// Work on a device that failed has ended.
bool has_ended(const Piece& piece, Deadline patience) noexcept {
  try {
    return std::ranges::all_of(piece.ends, [&](const auto& end) {
      return end->has_happened() || (!patience.has_passed() && end->synchronize(patience) == WaitResult::done);
    });
  } catch (const Error& error) {
    const bool has_failed = error.code() == Errc::device_fault || error.code() == Errc::device_lost;
    log(has_failed ? LogLevel::warn : LogLevel::debug, error.what());
    return has_failed;
  } catch (const std::exception& error) {
    log(LogLevel::debug, error.what());
    return false;  // queried again later
  }
}

}  // namespace

struct SlabAllocator::State {
  using Cache = std::list<std::unique_ptr<Piece>>;  // the oldest comes first

  State(Memory source, const SlabAllocatorOptions& chosen) : memory(std::move(source)), options(chosen) {}

  [[nodiscard]] std::uint64_t most_cached(int device) const {
    if (options.cached_bytes || options.is_divided) return options.cached_bytes.value_or(0);
    return backend_of(options.backend).open(device).info().memory_total / kShareOfDevice;
  }

  [[nodiscard]] std::unique_ptr<Piece> make(const Kind& kind) const {
    const auto bytes = static_cast<std::int64_t>(kind.bytes);
    Tensor made = empty(memory, DType::uint8, {bytes}, Place::device(options.backend, kind.device));
    return std::make_unique<Piece>(kind, std::move(made), options.is_divided);
  }

  [[nodiscard]] std::unique_ptr<Piece> take(const Kind& kind) DROVER_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    const auto found = by_kind.find(kind);
    ++(found == by_kind.end() ? misses : hits);
    if (found == by_kind.end()) return nullptr;
    const auto last = found->second.back();
    found->second.pop_back();
    return remove(found, last);
  }

  // Requires: `place` is no longer in the list of its kind.
  [[nodiscard]] std::unique_ptr<Piece> remove(std::map<Kind, std::deque<Cache::iterator>>::iterator kind,
                                              Cache::iterator place) DROVER_REQUIRES(mutex) {
    auto piece = std::move(*place);
    cache.erase(place);
    cached[piece->kind.device] -= piece->kind.bytes;
    if (kind->second.empty()) by_kind.erase(kind);
    return piece;
  }

  [[nodiscard]] DevicePtr hand_out(std::unique_ptr<Piece> piece) DROVER_EXCLUDES(mutex) {
    const DevicePtr ptr = piece->tensor.device_ptr();
    const MutexLock lock(mutex);
    allocated.insert_or_assign(ptr.address, std::move(piece));
    return ptr;
  }

  // Null for an address that is not allocated, after logging it.
  [[nodiscard]] std::unique_ptr<Piece> take_back(DevicePtr ptr) DROVER_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    auto node = allocated.extract(ptr.address);
    if (!node.empty()) return std::move(node.mapped());
    log(LogLevel::error,
        fmt::format("cannot free memory at {:#x}: it is not allocated, or was freed before", ptr.address));
    return nullptr;
  }

  // Caches a block if it can be reused; returns it otherwise, and those that exceed the limit now.
  [[nodiscard]] Pieces keep_or_return(std::unique_ptr<Piece> piece) DROVER_EXCLUDES(mutex) {
    if (is_reusable(*piece)) {
      const std::uint64_t most = most_cached(piece->kind.device);
      return keep(std::move(piece), most);
    }
    Pieces unusable;
    unusable.push_back(std::move(piece));
    return unusable;
  }

  // Caches a block; returns those that exceed the limit now.
  [[nodiscard]] Pieces keep(std::unique_ptr<Piece> piece, std::uint64_t most) DROVER_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    const int device = piece->kind.device;
    auto& places = by_kind[piece->kind];
    cached[device] += piece->kind.bytes;
    places.push_back(cache.insert(cache.end(), std::move(piece)));
    return surplus(device, most);
  }

  // The oldest of a kind is the first in both lists.
  [[nodiscard]] Pieces surplus(int device, std::uint64_t most) DROVER_REQUIRES(mutex) {
    Pieces taken;
    for (auto at = cache.begin(); at != cache.end() && cached[device] > most;) {
      const auto place = at++;
      if ((*place)->kind.device != device) continue;
      const auto kind = by_kind.find((*place)->kind);
      kind->second.pop_front();
      taken.push_back(remove(kind, place));
    }
    return taken;
  }

  [[nodiscard]] Pieces take_cache() DROVER_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    Pieces all(std::make_move_iterator(cache.begin()), std::make_move_iterator(cache.end()));
    cache.clear();
    by_kind.clear();
    cached.clear();
    return all;
  }

  // Releases blocks when their streams have done what they were given: now, or in a later call.
  void release(Pieces pieces) noexcept DROVER_EXCLUDES(mutex) {
    for (auto& piece : pieces) {
      const bool has_ends = mark_ends(*piece);
      const MutexLock lock(mutex);
      (has_ends ? leaving : stuck).push_back(std::move(piece));
      if (has_ends) ++leaving_count;
    }
    release_ended(Deadline::after({}));
  }

  // One thread at a time: a thread that needs memory must wait until another one has released what it checks.
  void release_ended(Deadline patience) noexcept DROVER_EXCLUDES(mutex) {
    const bool is_patient = !patience.has_passed();
    if (!is_patient && (leaving_count.load(std::memory_order_relaxed) == 0 || !checking.try_lock())) return;
    if (is_patient) checking.lock();
    const std::scoped_lock one(std::adopt_lock, checking);
    Pieces ended;
    Pieces rest;
    for (auto& piece : take_leaving()) {
      auto& into = has_ended(*piece, patience) ? ended : rest;
      into.push_back(std::move(piece));
    }
    const MutexLock lock(mutex);
    std::ranges::move(rest, std::back_inserter(leaving));
    leaving_count = leaving.size();
  }

  [[nodiscard]] Pieces take_leaving() DROVER_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    return std::exchange(leaving, {});
  }

  const Memory memory;
  const SlabAllocatorOptions options;
  std::mutex checking;  // of leaving blocks; acquired before the other
  mutable Mutex mutex;
  std::unordered_map<std::uint64_t, std::unique_ptr<Piece>> allocated DROVER_GUARDED_BY(mutex);  // by address
  Cache cache DROVER_GUARDED_BY(mutex);
  Pieces leaving DROVER_GUARDED_BY(mutex);                                       // freed and not reusable
  std::atomic<std::size_t> leaving_count{0};                                     // includes those being checked
  Pieces stuck DROVER_GUARDED_BY(mutex);                                         // leaving, with unknown ends
  std::map<Kind, std::deque<Cache::iterator>> by_kind DROVER_GUARDED_BY(mutex);  // none is empty
  std::map<int, std::uint64_t> cached DROVER_GUARDED_BY(mutex);                  // bytes, by device
  std::uint64_t hits DROVER_GUARDED_BY(mutex) = 0;
  std::uint64_t misses DROVER_GUARDED_BY(mutex) = 0;
};

SlabAllocator::SlabAllocator(const Memory& memory, const SlabAllocatorOptions& options)
    : state_(std::make_unique<State>(memory, options)) {}

SlabAllocator::~SlabAllocator() {
  if (tensor::TensorAccess::membership(state_->memory).self() == kNobody) {  // a forked child: leaked on purpose
    static_cast<void>(state_.release());                                     // NOLINT(bugprone-unused-return-value)
    return;
  }
  empty_cache();
  Pieces left;
  {
    const MutexLock lock(state_->mutex);
    for (auto& [address, piece] : state_->allocated) left.push_back(std::move(piece));
    state_->allocated.clear();
  }
  state_->release(std::move(left));
  state_->release_ended(Deadline::never());
}

DevicePtr SlabAllocator::allocate(int device, std::uint64_t bytes, std::uintptr_t stream) {
  static_cast<void>(tensor::TensorAccess::membership(state_->memory).require_self());
  if (bytes == 0) return {};
  const tensor::ReleasePause pause(state_->options.is_divided);
  const Kind kind{.device = device, .stream = stream, .bytes = size_class(bytes, state_->options.is_divided)};
  auto kept = state_->take(kind);
  state_->release_ended(Deadline::after({}));
  if (kept != nullptr) return state_->hand_out(std::move(kept));
  try {
    return state_->hand_out(state_->make(kind));
  } catch (const Error& error) {
    if (error.code() != Errc::device_memory && error.code() != Errc::limit_reached) throw;
  }
  empty_cache();
  state_->release_ended(Deadline::after(kPatience));
  return state_->hand_out(state_->make(kind));
}

void SlabAllocator::also_used_in(DevicePtr ptr, std::uintptr_t stream) noexcept {
  const MutexLock lock(state_->mutex);
  const auto found = state_->allocated.find(ptr.address);
  if (found == state_->allocated.end() || found->second->kind.stream == stream) return;
  auto& streams = found->second->other_streams;
  if (std::ranges::find(streams, stream) == streams.end()) streams.push_back(stream);
}

void SlabAllocator::free(DevicePtr ptr) noexcept {
  if (ptr.address == 0 || tensor::TensorAccess::membership(state_->memory).self() == kNobody) return;
  const tensor::ReleasePause pause(state_->options.is_divided);
  if (auto piece = state_->take_back(ptr)) state_->release(state_->keep_or_return(std::move(piece)));
}

std::optional<int> SlabAllocator::device_of(DevicePtr ptr) const {
  const MutexLock lock(state_->mutex);
  const auto found = state_->allocated.find(ptr.address);
  return found == state_->allocated.end() ? std::nullopt : std::optional(found->second->kind.device);
}

// What exceeds the limit was freed unused too.
void SlabAllocator::free_unused(DevicePtr ptr) noexcept {
  if (ptr.address == 0 || tensor::TensorAccess::membership(state_->memory).self() == kNobody) return;
  const tensor::ReleasePause pause(state_->options.is_divided);
  if (auto piece = state_->take_back(ptr)) state_->keep_or_return(std::move(piece)).clear();
}

void SlabAllocator::empty_cache() noexcept {
  const tensor::ReleasePause pause(state_->options.is_divided);
  state_->release(state_->take_cache());
}

SlabAllocatorUsage SlabAllocator::usage(std::optional<int> device) const {
  const MutexLock lock(state_->mutex);
  SlabAllocatorUsage usage{.hits = state_->hits, .misses = state_->misses};
  const auto is_there = [&](const Piece& piece) { return !device || piece.kind.device == *device; };
  for (const auto& [address, piece] : state_->allocated) {
    if (!is_there(*piece)) continue;
    ++usage.blocks;
    usage.bytes += piece->kind.bytes;
  }
  for (const auto& piece : state_->cache) {
    if (!is_there(*piece)) continue;
    ++usage.cached_blocks;
    usage.cached_bytes += piece->kind.bytes;
  }
  return usage;
}

}  // namespace drover
