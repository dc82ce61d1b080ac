#include "ipc/registry/object_table.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/ledger/slab_layout.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/queue/queue_layout.hpp"
#include "ipc/registry/departure.hpp"
#include "ipc/registry/object_kinds.hpp"

namespace drover::ipc {
namespace {

constexpr int kQueuesAtOnce = 64;  // searched at the end of a request
constexpr std::size_t kSharedSlabBytes = std::size_t{1} << 20U;
constexpr std::size_t kLargestSharedObject = kSharedSlabBytes / 16;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

// First fit: objects are few, and made and freed rarely.
bool take_range(ObjectSlab& slab, std::size_t bytes, std::uint64_t& offset) {
  const auto fits = std::ranges::find_if(slab.free_ranges, [&](const auto& range) { return range.second >= bytes; });
  if (fits == slab.free_ranges.end()) return false;
  offset = fits->first;
  const std::uint64_t rest = fits->second - bytes;
  slab.free_ranges.erase(fits);
  if (rest > 0) slab.free_ranges.emplace(offset + bytes, rest);
  ++slab.objects;
  return true;
}

void give_range(ObjectSlab& slab, std::uint64_t offset, std::size_t bytes) {
  auto at = slab.free_ranges.emplace(offset, bytes).first;
  if (const auto next = std::next(at); next != slab.free_ranges.end() && at->first + at->second == next->first) {
    at->second += next->second;
    slab.free_ranges.erase(next);
  }
  if (at != slab.free_ranges.begin()) {
    const auto before = std::prev(at);
    if (before->first + before->second == at->first) {
      before->second += at->second;
      slab.free_ranges.erase(at);
    }
  }
  --slab.objects;
}

ObjectSlab make_slab(std::uint32_t number, std::size_t bytes) {
  ObjectSlab slab;
  slab.file = make_memory_file(fmt::format("drover objects {}", number), bytes);
  slab.memory = Mapping::shared(slab.file, bytes);
  slab.free_ranges.emplace(0, bytes);
  return slab;
}

void check_file(const ObjectSpec& spec, const ObjectKindInfo& info, const Fd& file) {
  if (info.has_file == file.is_open()) return;
  throw Error(Errc::invalid_argument,
              fmt::format("cannot make a shared object of the kind {} {} a file", to_string(spec.kind),
                          info.has_file ? "without" : "with"),
              info.has_file ? "create it from its spec and a file" : "create it from its spec alone");
}

[[noreturn]] void throw_not_found(const ObjectHandle& handle) {
  throw Error(Errc::not_found, fmt::format("the shared object {} does not exist (any more)", handle.to_string()),
              "keep it open until all its users have opened it");
}

}  // namespace

ObjectHandle ObjectTable::create(const ObjectSpec& spec, Owner opener, std::uint64_t departed_before, Fd file) {
  const ObjectKindInfo& info = info_of(spec.kind);
  check_file(spec, info, file);
  if (const Entry* const single = info.is_single ? find_kind(spec.kind) : nullptr) {
    open(single->handle, opener);
    return single->handle;
  }
  Entry entry{.handle = {.kind = spec.kind, .slab = 0, .offset = 0, .generation = last_generation_ + 1},
              .spec = spec,
              .bytes = round_up(sizeof(ObjectHeader) + info.layout_bytes(spec), kCacheLine),
              .file = std::move(file),
              .openers = {opener},
              .acquainted = {opener}};
  place(entry);
  std::byte* const data = data_of(entry);
  if (entry.bytes <= kLargestSharedObject) std::memset(data, 0, entry.bytes);  // a file of its own is zero already
  ObjectHeader& header = header_of(data);
  header.version = kLayoutVersion;
  header.kind = static_cast<std::uint16_t>(spec.kind);
  header.generation = entry.handle.generation;
  header.departed_before = departed_before;
  header.ever_opened = 1;
  show_counts(entry);
  info.format(layout_of(data), spec);
  header.magic = kObjectMagic;
  ++last_generation_;
  const ObjectHandle handle = entry.handle;
  objects_.emplace(handle.generation, std::move(entry));
  known_[opener].insert(handle.generation);
  if (spec.kind == ObjectKind::overflow) overflows_[overflow_parent(spec)].insert(handle.generation);
  return handle;
}

void ObjectTable::place(Entry& entry) {
  if (entry.bytes <= kLargestSharedObject) {
    for (auto& [number, slab] : slabs_) {
      if (slab.memory.size() != kSharedSlabBytes || !take_range(slab, entry.bytes, entry.handle.offset)) continue;
      entry.handle.slab = number;
      return;
    }
  }
  const std::size_t bytes =
      entry.bytes <= kLargestSharedObject ? kSharedSlabBytes : round_up(entry.bytes, std::size_t{4096});
  ObjectSlab slab = make_slab(last_slab_ + 1, bytes);
  take_range(slab, entry.bytes, entry.handle.offset);
  entry.handle.slab = ++last_slab_;
  slabs_.emplace(last_slab_, std::move(slab));
}

const ObjectSpec& ObjectTable::open(const ObjectHandle& handle, Owner opener) {
  Entry* const entry = find(handle);
  if (entry == nullptr) throw_not_found(handle);
  if (entry->openers.insert(opener).second) ++header_of(data_of(*entry)).ever_opened;
  entry->acquainted.insert(opener);
  known_[opener].insert(handle.generation);
  unopened_slabs_.erase(handle.generation);
  unnamed_slabs_.erase(handle.generation);
  show_counts(*entry);
  return entry->spec;
}

const Fd& ObjectTable::file_of(const ObjectHandle& handle, Owner opener) const {
  const Entry* const entry = find(handle);
  if (entry == nullptr) throw_not_found(handle);
  if (!entry->openers.contains(opener)) {
    throw Error(Errc::invalid_argument,
                fmt::format("participant {} requests the file of the shared object {}, which it has not opened",
                            opener, handle.to_string()),
                "open the object first, and keep it open during the request");
  }
  if (entry->file.is_open()) return entry->file;
  throw Error(Errc::not_found, fmt::format("the shared object {} has no file", handle.to_string()),
              "request files of slabs only");
}

SlabLedger ObjectTable::ledger_of(const ObjectHandle& slab) const {
  const Entry* const entry = find(slab);
  if (entry == nullptr || entry->handle.kind != ObjectKind::slab) throw_not_found(slab);
  return {layout_of(data_of(*entry)), slab_geometry(entry->spec)};
}

void ObjectTable::close(const ObjectHandle& handle, Owner opener) noexcept {
  Entry* const entry = find(handle);
  if (entry == nullptr || entry->openers.erase(opener) == 0) return;
  show_counts(*entry);
  wake(*entry);  // they may be alone now
  erase_if_unused(*entry);
  for (int left = kQueuesAtOnce; left > 0 && search_queue(); --left) continue;  // the rest later
}

void ObjectTable::depart(Owner owner, pid_t pid) noexcept {
  Departure departure(*this, owner, pid);
  while (departure.work()) continue;
  while (search_queue()) continue;
}

void ObjectTable::end_openings(Entry& entry, Owner owner, pid_t pid) noexcept {
  const bool had_it_open = entry.openers.erase(owner) > 0;
  entry.acquainted.erase(owner);
  if (had_it_open && pid != 0) header_of(data_of(entry)).last_lost = static_cast<std::uint32_t>(pid);
  show_counts(entry);
  wake(entry);
  erase_if_unused(entry);
}

void ObjectTable::wake(const Entry& entry) const noexcept {
  info_of(entry.spec.kind).wake_all(layout_of(data_of(entry)), entry.spec);
}

void ObjectTable::wake_all() noexcept {
  for (const auto& [generation, entry] : objects_) wake(entry);
}

bool ObjectTable::work() noexcept {
  if (!wake_from_) return search_queue();
  const auto next = objects_.lower_bound(*wake_from_);
  wake_from_.reset();
  if (next == objects_.end()) return search_queue();
  wake(next->second);
  wake_from_ = next->first + 1;
  return true;
}

const ObjectSlab& ObjectTable::slab(std::uint32_t number) const {
  const auto at = slabs_.find(number);
  if (at == slabs_.end()) {
    throw Error(Errc::not_found, fmt::format("the session has no memory file number {}", number),
                "the object was freed; keep it open while it is in use");
  }
  return at->second;
}

std::size_t ObjectTable::bytes() const noexcept {
  std::size_t sum = 0;
  for (const auto& [number, slab] : slabs_) sum += slab.memory.size();
  return sum;
}

std::size_t ObjectTable::file_count() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(objects_, [](const auto& each) { return each.second.file.is_open(); }));
}

std::uint64_t ObjectTable::file_bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& [generation, entry] : objects_) sum += entry.file.is_open() ? entry.spec.parameters[0] : 0;
  return sum;
}

const ObjectTable::Entry* ObjectTable::find(const ObjectHandle& handle) const noexcept {
  const auto at = objects_.find(handle.generation);
  return at != objects_.end() && at->second.handle == handle ? &at->second : nullptr;
}

ObjectTable::Entry* ObjectTable::find(const ObjectHandle& handle) noexcept {
  return const_cast<Entry*>(std::as_const(*this).find(handle));  // NOLINT(*-const-cast): this is not const
}

const ObjectTable::Entry* ObjectTable::find_kind(ObjectKind kind) const noexcept {
  const auto at = std::ranges::find_if(objects_, [&](const auto& each) { return each.second.handle.kind == kind; });
  return at == objects_.end() ? nullptr : &at->second;
}

std::byte* ObjectTable::data_of(const Entry& entry) const {
  return slabs_.at(entry.handle.slab).memory.data() + entry.handle.offset;
}

// Frees a queue's overflow objects with it.
void ObjectTable::erase(std::uint64_t generation) noexcept {
  const auto node = objects_.extract(generation);
  if (node.empty()) return;
  const Entry& entry = node.mapped();
  if (entry.handle.kind == ObjectKind::queue) drop_leases_of(entry);
  header_of(data_of(entry)).magic = 0;
  for (const Owner owner : entry.acquainted) {
    if (const auto known = known_.find(owner); known != known_.end()) known->second.erase(generation);
  }
  if (entry.handle.kind == ObjectKind::overflow) {
    if (const auto siblings = overflows_.find(overflow_parent(entry.spec)); siblings != overflows_.end()) {
      siblings->second.erase(generation);
    }
  }
  unopened_slabs_.erase(generation);
  unnamed_slabs_.erase(generation);
  const auto slab = slabs_.find(entry.handle.slab);
  give_range(slab->second, entry.handle.offset, entry.bytes);
  if (slab->second.objects == 0) slabs_.erase(slab);
  if (entry.handle.kind != ObjectKind::queue) return;
  search_later();
  if (const auto overflows = overflows_.extract(generation); !overflows.empty()) {
    for (const std::uint64_t overflow : overflows.mapped()) erase(overflow);
  }
}

// Leases that nobody received end with their queue.
void ObjectTable::drop_leases_of(const Entry& queue) noexcept {
  for_each_sent_lease(layout_of(data_of(queue)), queue.spec, [&](const SentLease& sent) {
    const Entry* const slab = find(sent.slab);
    if (slab == nullptr || slab->handle.kind != ObjectKind::slab) return;
    SlabLedger(layout_of(data_of(*slab)), slab_geometry(slab->spec)).drop(sent.lease, kInTransit);
  });
}

void ObjectTable::show_counts(const Entry& entry) const {
  ObjectHeader& header = header_of(data_of(entry));
  header.openers = static_cast<std::uint32_t>(entry.openers.size());
  header.acquainted = static_cast<std::uint32_t>(entry.acquainted.size());
}

// The producer of a message with an overflow object has closed that object; the record refers to it until a consumer
// opens it. A slab without openers lives while messages name it.
void ObjectTable::erase_if_unused(const Entry& entry) noexcept {
  if (!entry.openers.empty() || info_of(entry.spec.kind).is_single) return;
  if (entry.handle.kind == ObjectKind::overflow && is_in_transit(entry)) return;
  if (entry.handle.kind == ObjectKind::slab && has_leases(entry)) {
    unopened_slabs_.insert(entry.handle.generation);
    search_later();
    return;
  }
  erase(entry.handle.generation);
}

bool ObjectTable::is_in_transit(const Entry& overflow) const noexcept {
  const auto queue = objects_.find(overflow_parent(overflow.spec));
  return queue != objects_.end() && queue->second.handle.kind == ObjectKind::queue &&
         queue_references(layout_of(data_of(queue->second)), queue->second.spec, overflow.handle.generation);
}

// Whether a message may name a lease of this slab.
bool ObjectTable::has_leases(const Entry& slab) const noexcept {
  return SlabLedger(layout_of(data_of(slab)), slab_geometry(slab.spec)).has_leases();
}

// When the last message that names a slab is gone, nobody may be left to close the slab. Called when a queue or a
// record has gone, or a slab has lost its last opener.
void ObjectTable::search_later() noexcept { must_search_ = !unopened_slabs_.empty(); }

// Searches one queue for the names of slabs without openers; false if there is nothing to search. Asks the messages,
// since a participant may have corrupted the ledgers. Whoever moves a message to a queue that was searched already
// has opened the slab before, and an opened slab leaves the search.
bool ObjectTable::search_queue() noexcept {
  if (!searched_) {
    if (!std::exchange(must_search_, false)) return false;
    unnamed_slabs_ = unopened_slabs_;
    searched_ = 0;
  }
  auto next = objects_.upper_bound(*searched_);
  while (next != objects_.end() && next->second.handle.kind != ObjectKind::queue) ++next;
  if (next != objects_.end() && !unnamed_slabs_.empty()) {
    const Entry& queue = next->second;
    searched_ = next->first;
    for_each_sent_lease(layout_of(data_of(queue)), queue.spec,
                        [&](const SentLease& sent) { unnamed_slabs_.erase(sent.slab.generation); });
    return true;
  }
  searched_.reset();
  for (const std::uint64_t slab : std::exchange(unnamed_slabs_, {})) erase(slab);
  return must_search_;
}

}  // namespace drover::ipc
