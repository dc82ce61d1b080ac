#include "ipc/registry/object_table.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "ipc/ledger/slab_layout.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/queue/queue_layout.hpp"
#include "ipc/registry/object_kinds.hpp"

namespace drover::ipc {
namespace {

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
  if (spec.kind == ObjectKind::slab) slab_objects_.insert(entry.handle.generation);
  ++last_generation_;
  return objects_.emplace(last_generation_, std::move(entry)).first->second.handle;
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
  if (entry != nullptr && entry->openers.erase(opener) > 0) {
    if (is_unused(*entry)) {
      erase(objects_.find(handle.generation));
    } else {
      show_counts(*entry);
      info_of(entry->spec.kind).wake_all(layout_of(data_of(*entry)), entry->spec);  // they may be alone now
    }
  }
  erase_unused_slabs();
}

void ObjectTable::depart(Owner owner, pid_t pid) noexcept {
  for (auto& [generation, entry] : objects_) recover(entry, owner);
  recover_slabs(owner);
  for (auto at = objects_.begin(); at != objects_.end();) {
    Entry& entry = at->second;
    const bool had_it_open = entry.openers.erase(owner) > 0;
    entry.acquainted.erase(owner);
    if (had_it_open && pid != 0) header_of(data_of(entry)).last_lost = static_cast<std::uint32_t>(pid);
    show_counts(entry);
    at = is_unused(entry) ? erase(at) : std::next(at);
  }
  erase_unused_slabs();
  wake_all();
}

void ObjectTable::wake_all() noexcept {
  for (auto& [generation, entry] : objects_) info_of(entry.spec.kind).wake_all(layout_of(data_of(entry)), entry.spec);
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

// Frees a queue's overflow objects with it; they come later in the map, being younger.
ObjectTable::Entries::iterator ObjectTable::erase(Entries::iterator at) noexcept {
  if (at->second.handle.kind == ObjectKind::queue) drop_leases_of(at->second);
  const Entry entry = std::move(at->second);
  header_of(data_of(entry)).magic = 0;
  auto slab = slabs_.find(entry.handle.slab);
  give_range(slab->second, entry.handle.offset, entry.bytes);
  if (slab->second.objects == 0) slabs_.erase(slab);
  at = objects_.erase(at);
  slab_objects_.erase(entry.handle.generation);
  if (entry.handle.kind != ObjectKind::queue) return at;
  for (auto other = objects_.begin(); other != objects_.end();) {
    const bool is_mine = other->second.handle.kind == ObjectKind::overflow &&
                         overflow_parent(other->second.spec) == entry.handle.generation;
    if (!is_mine) {
      ++other;
    } else if (other == at) {
      at = other = erase(other);
    } else {
      other = erase(other);
    }
  }
  return at;
}

void ObjectTable::recover(Entry& entry, Owner dead) noexcept {
  try {
    info_of(entry.spec.kind).recover(layout_of(data_of(entry)), entry.spec, dead);
  } catch (const std::exception& error) {  // an object corrupted by a participant must not stop the keeper
    log(LogLevel::error, error.what());
  }
}

// After all queues, which then name the leases in messages.
void ObjectTable::recover_slabs(Owner dead) noexcept {
  for (const std::uint64_t generation : slab_objects_) {
    const auto at = objects_.find(generation);
    if (at == objects_.end()) continue;
    try {
      const auto sent = leases_sent_by(dead, at->second);
      recover_slab(layout_of(data_of(at->second)), at->second.spec, dead,
                   [&](LeaseRef lease) { return sent.contains(lease); });
    } catch (const std::exception& error) {
      log(LogLevel::error, error.what());
    }
  }
}

// The leases of the dead to which a message refers. No lease comes to the dead any more, so others can be ignored;
// and the result is bounded by the leases of the slab, whatever a participant wrote into its queues.
std::set<LeaseRef> ObjectTable::leases_sent_by(Owner dead, const Entry& slab) const {
  const SlabLedger ledger(layout_of(data_of(slab)), slab_geometry(slab.spec));
  std::set<LeaseRef> sent;
  for_each_sent(slab.handle, [&](LeaseRef lease) {
    if (ledger.is_of(lease, dead)) sent.insert(lease);
  });
  return sent;
}

// Visits the leases of `slab` in all queues.
void ObjectTable::for_each_sent(const ObjectHandle& slab, const std::function<void(LeaseRef)>& visit) const {
  for (const auto& [generation, entry] : objects_) {
    if (entry.handle.kind != ObjectKind::queue) continue;
    for_each_sent_lease(layout_of(data_of(entry)), entry.spec, [&](const SentLease& sent) {
      if (sent.slab == slab) visit(sent.lease);
    });
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
// opens it.
bool ObjectTable::is_unused(const Entry& entry) const noexcept {
  if (!entry.openers.empty() || info_of(entry.spec.kind).is_single) return false;
  if (entry.handle.kind == ObjectKind::slab) return !is_sent(entry);
  return entry.handle.kind != ObjectKind::overflow || !is_in_transit(entry);
}

bool ObjectTable::is_in_transit(const Entry& overflow) const noexcept {
  const auto queue = objects_.find(overflow_parent(overflow.spec));
  return queue != objects_.end() && queue->second.handle.kind == ObjectKind::queue &&
         queue_references(layout_of(data_of(queue->second)), queue->second.spec, overflow.handle.generation);
}

// Asks the messages, not the ledger, which a participant may have corrupted and nobody uses any more.
bool ObjectTable::is_sent(const Entry& slab) const noexcept {
  bool is_found = false;
  for_each_sent(slab.handle, [&](LeaseRef) { is_found = true; });
  return is_found;
}

// When the last message that needs a slab is gone, nobody may be left to close the slab.
void ObjectTable::erase_unused_slabs() noexcept {
  for (auto next = slab_objects_.begin(); next != slab_objects_.end();) {
    const auto at = objects_.find(*next++);  // erasing takes the generation out of the set
    if (at != objects_.end() && is_unused(at->second)) erase(at);
  }
}

}  // namespace drover::ipc
