#include "tensor/memory/imports.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"

namespace drover::tensor {
namespace {

// Holds the newest of the same bytes, and returns the one before, which the caller releases without the mutex. The
// newest, since torch takes the bytes from a storage that is resized; only one, since an array may be sent often.
std::shared_ptr<void> hold(ImportedMemory& imported, const KeptBytes& bytes) {
  if (bytes.keep_alive.use_count() == 0) return nullptr;  // empty; a pointer that owns something may still be null
  return std::exchange(imported.keep_alive[{bytes.begin.address, bytes.bytes}], bytes.keep_alive);
}

bool is_file(const SlabEntry& entry) noexcept { return entry.imported && !entry.slab->place().is_device; }

}  // namespace

// The lease keeps the import in use from before the entry is visible.
std::pair<Lease, std::shared_ptr<MappedSlab>> Imports::open_or_make(
    const ForeignMemory& memory, const KeptBytes& kept, const std::function<std::shared_ptr<MappedSlab>()>& make) {
  if (auto known = reopen(memory, kept); known.second != nullptr) return known;
  auto slab = make();
  const auto anchor = std::make_shared<const Lease>(slab->book().allocate(memory.size));
  if (!anchor->is_open()) {
    throw Error(Errc::internal, fmt::format("a slab of {} has no room for itself", format_bytes(memory.size)),
                "please report this");
  }
  Lease lease = anchor->share();
  auto imported = std::make_unique<ImportedMemory>(ImportedMemory{.memory = memory, .anchor = anchor});
  hold(*imported, kept);
  const MutexLock lock(table_.mutex);
  table_.entries.try_emplace(slab->generation(), SlabEntry{.slab = slab, .imported = std::move(imported)});
  ++table_.import_count;
  return {std::move(lease), std::move(slab)};
}

// While a copy of the anchor is held, the import counts as used.
std::pair<Lease, std::shared_ptr<MappedSlab>> Imports::reopen(const ForeignMemory& memory, const KeptBytes& kept) {
  std::shared_ptr<void> replaced;
  std::shared_ptr<MappedSlab> slab;
  std::shared_ptr<const Lease> anchor;
  {
    const MutexLock lock(table_.mutex);
    const auto at = std::ranges::find_if(table_.entries, [&](const auto& each) {
      return each.second.imported && each.second.imported->memory == memory;
    });
    if (at == table_.entries.end()) return {};
    slab = at->second.slab;
    anchor = at->second.imported->anchor;
    replaced = hold(*at->second.imported, kept);
  }
  return {anchor->share(), std::move(slab)};
}

std::vector<SlabEntry> Imports::take_unused_files() {
  const MutexLock lock(table_.mutex);
  return table_.take_if([](const SlabEntry& entry) { return is_file(entry) && entry.is_import_unused(); });
}

bool Imports::has_files() const {
  const MutexLock lock(table_.mutex);
  return std::ranges::any_of(table_.entries, [](const auto& each) { return is_file(each.second); });
}

std::vector<SlabEntry> Imports::take_unused() {
  if (table_.import_count == 0) return {};
  const MutexLock lock(table_.mutex);
  return table_.take_if([](const SlabEntry& entry) { return entry.imported && entry.is_import_unused(); });
}

}  // namespace drover::tensor
