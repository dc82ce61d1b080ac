// Memory of other libraries in a MemoryState: made a slab once, and given back when nobody in the session uses it.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/log.hpp"
#include "tensor/memory_state.hpp"

namespace drover {

MemoryState::~MemoryState() {
  later_.stop();
  if (membership_->self() == kNobody) {  // keepers of other libraries must not run here
    // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): leaked on purpose; without memory the child ends here
    static_cast<void>(new std::map<std::uint64_t, Known>(std::move(slabs_)));
    return;
  }
  release_retired(Deadline::never());
  for (const auto& [generation, known] : slabs_) {
    if (!known.imported || is_over(known)) continue;
    log(LogLevel::warn,
        fmt::format("imported memory of {} at {} is given back to its library while other processes use it; keep the "
                    "Memory until they are done",
                    format_bytes(known.imported->memory.size), to_string(known.imported->memory.place)));
  }
}

Block MemoryState::import_memory(const ForeignMemory& memory, const std::shared_ptr<void>& keeper) {
  static_cast<void>(membership_->require_self());
  release_retired(Deadline::after({}));
  if (Block block = import_again(memory, keeper); block.is_open()) return block;
  const auto slab = MappedSlab::make(membership_, memory);
  const auto anchor = std::make_shared<const Lease>(slab->book().allocate(memory.size));
  if (!anchor->is_open()) {
    throw Error(Errc::internal, fmt::format("a slab of {} has no room for itself", format_bytes(memory.size)),
                "please report this");
  }
  Lease lease = anchor->share();
  const MutexLock lock(mutex_);
  auto imported = std::make_unique<Import>(Import{.memory = memory, .keepers = {keeper}, .anchor = anchor});
  slabs_.try_emplace(slab->book().object().handle().generation, Known{.slab = slab, .imported = std::move(imported)});
  ++imports_;
  return claim(std::move(lease), slab);
}

// While a copy of the anchor is held, the import is not over.
Block MemoryState::import_again(const ForeignMemory& memory, const std::shared_ptr<void>& keeper) {
  std::shared_ptr<MappedSlab> slab;
  std::shared_ptr<const Lease> anchor;
  {
    const MutexLock lock(mutex_);
    const auto at = std::ranges::find_if(
        slabs_, [&](const auto& entry) { return entry.second.imported && entry.second.imported->memory == memory; });
    if (at == slabs_.end()) return {};
    slab = at->second.slab;
    anchor = at->second.imported->anchor;
    auto& keepers = at->second.imported->keepers;
    const auto is_same = [&](const auto& kept) { return !kept.owner_before(keeper) && !keeper.owner_before(kept); };
    if (std::ranges::none_of(keepers, is_same)) keepers.push_back(keeper);
  }
  Lease lease = anchor->share();
  const MutexLock lock(mutex_);
  return claim(std::move(lease), slab);
}

// Others must have closed what they opened by a handle, too, not only released it: who opens it has a lease before.
bool MemoryState::is_over(const Known& known) noexcept {
  if (known.claims > 0 || known.imported->anchor.use_count() > 1) return false;
  return SlabBook::is_only(*known.imported->anchor) && (!known.slab->is_by_handle() || known.slab->is_alone());
}

// Keepers belong to other libraries, and do what they like when they go: not under the mutex.
void MemoryState::end_imports() noexcept {
  if (imports_ == 0) return;
  std::vector<Known> ended;
  const MutexLock lock(mutex_);
  ended = take_if([](const Known& known) { return known.imported && is_over(known); });
  if (!ended.empty()) works_.bury_without_keeper();
}

}  // namespace drover
