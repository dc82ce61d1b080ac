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
#include "tensor/exchange/lent_regions.hpp"
#include "tensor/tensor_access.hpp"

namespace drover {
namespace {

constexpr std::uint64_t kSmallest = 512;
constexpr std::uint64_t kShareOfDevice = 8;
// How long an allocation that found no memory waits for work that uses what was freed.
constexpr std::chrono::seconds kPatience{10};

// Eight sizes to each power of two: what differs a little shares its reserve, and an eighth is wasted at most.
std::uint64_t size_class(std::uint64_t bytes) {
  const std::uint64_t step = std::max(std::bit_floor(bytes) / 8, kSmallest);
  return (bytes + step - 1) / step * step;
}

// Memory that is alike to who asks for some.
struct Kind {
  int device = 0;
  std::uintptr_t stream = 0;
  std::uint64_t bytes = 0;
  auto operator<=>(const Kind&) const = default;
};

// One block, given out or kept. Known by its address for as long as it lives.
struct Piece {
  Piece(const Kind& what, Tensor memory)
      : kind(what), tensor(std::move(memory)), entry(TensorAccess::storage(tensor)) {}

  const Kind kind;
  const Tensor tensor;
  const LentRegions::Entry entry;
  std::vector<std::uintptr_t> other_streams;
  std::vector<std::unique_ptr<StreamEvent>> ends;  // of what its streams were given, once it is freed for good
};
using Pieces = std::vector<std::unique_ptr<Piece>>;

// Whether nobody but its allocator has it, here and elsewhere, and nothing but its stream works on it.
bool is_reusable(const Piece& piece) noexcept {
  const auto& storage = TensorAccess::storage(piece.tensor);
  if (!piece.other_streams.empty() || storage.use_count() > 1) return false;
  try {
    return storage->is_ready() && SlabBook::is_only(storage->block().lease());
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
    return false;
  }
}

// Marks the ends of what its streams were given so far. False if one cannot be asked, as one that was destroyed: then
// nobody knows when that is.
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
    log(LogLevel::warn, fmt::format("{} at {} are not given back before the end: {}", format_bytes(piece.kind.bytes),
                                    to_string(piece.tensor.place()), error.what()));
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
    return false;  // asked again later
  }
}

}  // namespace

struct SlabAllocator::State {
  using Reserve = std::list<std::unique_ptr<Piece>>;  // the one freed first comes first

  State(Memory taken_from, const SlabAllocatorOptions& told) : memory(std::move(taken_from)), options(told) {}

  [[nodiscard]] std::uint64_t most_cached(int device) const {
    if (options.cached_bytes) return *options.cached_bytes;
    return backend_of(options.backend).open(device).info().memory_total / kShareOfDevice;
  }

  [[nodiscard]] std::unique_ptr<Piece> make(const Kind& kind) const {
    const auto bytes = static_cast<std::int64_t>(kind.bytes);
    return std::make_unique<Piece>(kind,
                                   empty(memory, DType::uint8, {bytes}, Place::device(options.backend, kind.device)));
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
  [[nodiscard]] std::unique_ptr<Piece> remove(std::map<Kind, std::deque<Reserve::iterator>>::iterator kind,
                                              Reserve::iterator place) DROVER_REQUIRES(mutex) {
    auto piece = std::move(*place);
    reserve.erase(place);
    cached[piece->kind.device] -= piece->kind.bytes;
    if (kind->second.empty()) by_kind.erase(kind);
    return piece;
  }

  [[nodiscard]] DevicePtr give_out(std::unique_ptr<Piece> piece) DROVER_EXCLUDES(mutex) {
    const DevicePtr ptr = piece->tensor.device_ptr();
    const MutexLock lock(mutex);
    given.insert_or_assign(ptr.address, std::move(piece));
    return ptr;
  }

  [[nodiscard]] std::unique_ptr<Piece> take_back(DevicePtr ptr) DROVER_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    auto node = given.extract(ptr.address);
    return node.empty() ? nullptr : std::move(node.mapped());
  }

  // Returns what is too much now.
  [[nodiscard]] Pieces keep(std::unique_ptr<Piece> piece, std::uint64_t most) DROVER_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    const int device = piece->kind.device;
    auto& places = by_kind[piece->kind];
    cached[device] += piece->kind.bytes;
    places.push_back(reserve.insert(reserve.end(), std::move(piece)));
    return surplus(device, most);
  }

  // The oldest of a kind is the first in both lists.
  [[nodiscard]] Pieces surplus(int device, std::uint64_t most) DROVER_REQUIRES(mutex) {
    Pieces taken;
    for (auto at = reserve.begin(); at != reserve.end() && cached[device] > most;) {
      const auto place = at++;
      if ((*place)->kind.device != device) continue;
      const auto kind = by_kind.find((*place)->kind);
      kind->second.pop_front();
      taken.push_back(remove(kind, place));
    }
    return taken;
  }

  [[nodiscard]] Pieces take_reserve() DROVER_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    Pieces all(std::make_move_iterator(reserve.begin()), std::make_move_iterator(reserve.end()));
    reserve.clear();
    by_kind.clear();
    cached.clear();
    return all;
  }

  // Given back when their streams have done what they were given: now, or at one of the next calls.
  void release(Pieces pieces) noexcept DROVER_EXCLUDES(mutex) {
    for (auto& piece : pieces) {
      const bool has_ends = mark_ends(*piece);
      const MutexLock lock(mutex);
      (has_ends ? leaving : stuck).push_back(std::move(piece));
      if (has_ends) ++leaving_count;
    }
    release_ended(Deadline::after({}));
  }

  // One thread at a time, so that none that needs memory finds nothing while another looks: what has ended is given
  // back before the next one looks.
  void release_ended(Deadline patience) noexcept DROVER_EXCLUDES(mutex) {
    const bool is_patient = !patience.has_passed();
    if (!is_patient && (leaving_count.load(std::memory_order_relaxed) == 0 || !looking.try_lock())) return;
    if (is_patient) looking.lock();
    const std::scoped_lock one(std::adopt_lock, looking);
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
  std::mutex looking;  // for what has ended; before the other
  mutable Mutex mutex;
  std::unordered_map<std::uint64_t, std::unique_ptr<Piece>> given DROVER_GUARDED_BY(mutex);  // by address
  Reserve reserve DROVER_GUARDED_BY(mutex);
  Pieces leaving DROVER_GUARDED_BY(mutex);    // freed for good
  std::atomic<std::size_t> leaving_count{0};  // with those in the hands of who looks
  Pieces stuck DROVER_GUARDED_BY(mutex);      // and with unknown ends
  std::map<Kind, std::deque<Reserve::iterator>> by_kind DROVER_GUARDED_BY(mutex);  // none is empty
  std::map<int, std::uint64_t> cached DROVER_GUARDED_BY(mutex);                    // bytes, by device
  std::uint64_t hits DROVER_GUARDED_BY(mutex) = 0;
  std::uint64_t misses DROVER_GUARDED_BY(mutex) = 0;
};

SlabAllocator::SlabAllocator(const Memory& memory, const SlabAllocatorOptions& options)
    : state_(std::make_unique<State>(memory, options)) {}

SlabAllocator::~SlabAllocator() {
  if (TensorAccess::membership(state_->memory).self() == kNobody) {  // a forked child: leaked on purpose
    static_cast<void>(state_.release());                             // NOLINT(bugprone-unused-return-value)
    return;
  }
  empty_cache();
  Pieces left;
  {
    const MutexLock lock(state_->mutex);
    for (auto& [address, piece] : state_->given) left.push_back(std::move(piece));
    state_->given.clear();
  }
  state_->release(std::move(left));
  state_->release_ended(Deadline::never());
}

DevicePtr SlabAllocator::allocate(int device, std::uint64_t bytes, std::uintptr_t stream) {
  static_cast<void>(TensorAccess::membership(state_->memory).require_self());
  if (bytes == 0) return {};
  const Kind kind{.device = device, .stream = stream, .bytes = size_class(bytes)};
  auto kept = state_->take(kind);
  state_->release_ended(Deadline::after({}));
  if (kept != nullptr) return state_->give_out(std::move(kept));
  try {
    return state_->give_out(state_->make(kind));
  } catch (const Error& error) {
    if (error.code() != Errc::device_memory && error.code() != Errc::limit_reached) throw;
  }
  empty_cache();
  state_->release_ended(Deadline::after(kPatience));
  return state_->give_out(state_->make(kind));
}

void SlabAllocator::also_used_in(DevicePtr ptr, std::uintptr_t stream) noexcept {
  const MutexLock lock(state_->mutex);
  const auto found = state_->given.find(ptr.address);
  if (found == state_->given.end() || found->second->kind.stream == stream) return;
  auto& streams = found->second->other_streams;
  if (std::ranges::find(streams, stream) == streams.end()) streams.push_back(stream);
}

void SlabAllocator::free(DevicePtr ptr) noexcept {
  if (ptr.address == 0 || TensorAccess::membership(state_->memory).self() == kNobody) return;
  auto piece = state_->take_back(ptr);
  if (piece == nullptr) {
    log(LogLevel::error,
        fmt::format("memory at {:#x} was to be freed, which was not given out, or freed before", ptr.address));
    return;
  }
  Pieces leaving;
  if (is_reusable(*piece)) {
    const std::uint64_t most = state_->most_cached(piece->kind.device);
    leaving = state_->keep(std::move(piece), most);
  } else {
    leaving.push_back(std::move(piece));
  }
  state_->release(std::move(leaving));
}

void SlabAllocator::empty_cache() noexcept { state_->release(state_->take_reserve()); }

SlabAllocatorUsage SlabAllocator::usage(std::optional<int> device) const {
  const MutexLock lock(state_->mutex);
  SlabAllocatorUsage usage{.hits = state_->hits, .misses = state_->misses};
  const auto is_there = [&](const Piece& piece) { return !device || piece.kind.device == *device; };
  for (const auto& [address, piece] : state_->given) {
    if (!is_there(*piece)) continue;
    ++usage.blocks;
    usage.bytes += piece->kind.bytes;
  }
  for (const auto& piece : state_->reserve) {
    if (!is_there(*piece)) continue;
    ++usage.cached_blocks;
    usage.cached_bytes += piece->kind.bytes;
  }
  return usage;
}

}  // namespace drover
