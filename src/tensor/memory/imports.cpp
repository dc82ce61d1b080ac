#include "tensor/memory/imports.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"

namespace drover::tensor {
namespace {

// Holds `bytes`, and returns what that makes redundant. Of the same bytes the newest is enough, and of those inside
// it: otherwise a tensor that is sent repeatedly would be held once for each time. An older one of the same bytes is
// not enough: torch takes the bytes from a storage that is resized.
std::vector<std::shared_ptr<void>> hold(ImportedMemory& imported, const KeptBytes& bytes) {
  std::vector<std::shared_ptr<void>> replaced;
  if (bytes.keep_alive.use_count() == 0) return replaced;  // empty; a pointer that owns something may still be null
  auto& all = imported.keep_alive;
  for (auto at = all.lower_bound({bytes.begin.address, 0}); at != all.end() && at->first.first < bytes.end();) {
    if (at->first.second > bytes.end()) {
      ++at;
      continue;
    }
    replaced.push_back(std::move(at->second));
    at = all.erase(at);
  }
  all.try_emplace({bytes.begin.address, bytes.end()}, bytes.keep_alive);
  return replaced;
}

}  // namespace

// The lease keeps the import in use from before the entry is visible.
std::pair<Lease, std::shared_ptr<MappedSlab>> Imports::open(const ForeignMemory& memory, const KeptBytes& kept) {
  if (auto known = reopen(memory, kept); known.second != nullptr) return known;
  auto slab = MappedSlab::make(membership_, memory);
  const auto anchor = std::make_shared<const Lease>(slab->book().allocate(memory.size));
  if (!anchor->is_open()) {
    throw Error(Errc::internal, fmt::format("a slab of {} has no room for itself", format_bytes(memory.size)),
                "please report this");
  }
  Lease lease = anchor->share();
  auto imported = std::make_unique<ImportedMemory>(ImportedMemory{.memory = memory, .anchor = anchor});
  static_cast<void>(hold(*imported, kept));
  const MutexLock lock(table_.mutex);
  table_.entries.try_emplace(slab->generation(), SlabEntry{.slab = slab, .imported = std::move(imported)});
  ++table_.import_count;
  return {std::move(lease), std::move(slab)};
}

// While a copy of the anchor is held, the import counts as used.
std::pair<Lease, std::shared_ptr<MappedSlab>> Imports::reopen(const ForeignMemory& memory, const KeptBytes& kept) {
  std::vector<std::shared_ptr<void>> replaced;  // released without the mutex
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

std::vector<SlabEntry> Imports::take_unused() {
  if (table_.import_count == 0) return {};
  const MutexLock lock(table_.mutex);
  return table_.take_if([](const SlabEntry& entry) { return entry.imported && entry.is_import_unused(); });
}

}  // namespace drover::tensor
