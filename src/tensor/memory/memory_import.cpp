// Memory of other libraries in a MemoryState: made a slab once, and given back when nobody in the session uses it.
#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/log.hpp"
#include "tensor/memory/memory_state.hpp"

namespace drover {
namespace {

// Somebody who keeps memory open by a handle for more to come closes it in a part of this.
constexpr std::chrono::milliseconds kClosingPatience{250};
constexpr std::chrono::milliseconds kBetweenLooks{2};

}  // namespace

MemoryState::~MemoryState() {
  later_.stop();
  soon_.stop();
  if (membership_->self() == kNobody) {  // keepers of other libraries must not run here
    // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): leaked on purpose; without memory the child ends here
    static_cast<void>(new std::map<std::uint64_t, Known>(std::move(slabs_)));
    return;
  }
  release_retired(Deadline::never());
  await_closing();
  for (const auto& [generation, known] : slabs_) {
    if (!known.imported || is_over(known)) continue;
    log(LogLevel::warn,
        fmt::format("imported memory of {} at {} is given back to its library while other processes use it; keep the "
                    "Memory until they are done",
                    format_bytes(known.imported->memory.size), to_string(known.imported->memory.place)));
  }
}

// Waits for those who have let go, or do so now, but not closed it; and closes what this process has open: they may
// wait, too.
void MemoryState::await_closing() noexcept {
  {
    std::vector<Known> closed;
    const MutexLock lock(mutex_);
    closed = take_if(
        [](const Known& known) { return !known.imported && known.slab->is_by_handle() && known.claims == 0; });
  }
  const auto is_closing = [](const auto& entry) {
    const Known& known = entry.second;
    return known.imported && known.claims == 0 && !is_over(known);
  };
  const auto deadline = Deadline::after(kClosingPatience);
  const auto has_any = [&] {
    const MutexLock lock(mutex_);
    return std::ranges::any_of(slabs_, is_closing);
  };
  while (has_any() && !deadline.has_passed()) std::this_thread::sleep_for(kBetweenLooks);
}

// The newest of the same bytes is enough, and of those inside of its own: else a tensor that is sent again and again
// would have one for each time. The older one is not: torch takes the bytes from a storage that is resized.
std::vector<std::shared_ptr<void>> MemoryState::Import::keep(const KeptBytes& bytes) {
  std::vector<std::shared_ptr<void>> replaced;
  if (bytes.keeper.use_count() == 0) return replaced;  // none; one may well point to nothing
  for (auto at = keepers.lower_bound({bytes.begin.address, 0});
       at != keepers.end() && at->first.first < bytes.end();) {
    if (at->first.second > bytes.end()) {
      ++at;
      continue;
    }
    replaced.push_back(std::move(at->second));
    at = keepers.erase(at);
  }
  keepers.try_emplace({bytes.begin.address, bytes.end()}, bytes.keeper);
  return replaced;
}

Block MemoryState::import_memory(const ForeignMemory& memory, const KeptBytes& kept) {
  static_cast<void>(membership_->require_self());
  release_retired(Deadline::after({}));
  if (Block block = import_again(memory, kept); block.is_open()) return block;
  const auto slab = MappedSlab::make(membership_, memory);
  const auto anchor = std::make_shared<const Lease>(slab->book().allocate(memory.size));
  if (!anchor->is_open()) {
    throw Error(Errc::internal, fmt::format("a slab of {} has no room for itself", format_bytes(memory.size)),
                "please report this");
  }
  Lease lease = anchor->share();
  const MutexLock lock(mutex_);
  auto imported = std::make_unique<Import>(Import{.memory = memory, .anchor = anchor});
  static_cast<void>(imported->keep(kept));
  slabs_.try_emplace(slab->book().object().handle().generation, Known{.slab = slab, .imported = std::move(imported)});
  ++imports_;
  return claim(std::move(lease), slab);
}

// While a copy of the anchor is held, the import is not over.
Block MemoryState::import_again(const ForeignMemory& memory, const KeptBytes& kept) {
  std::vector<std::shared_ptr<void>> replaced;  // goes without the mutex
  std::shared_ptr<MappedSlab> slab;
  std::shared_ptr<const Lease> anchor;
  {
    const MutexLock lock(mutex_);
    const auto at = std::ranges::find_if(
        slabs_, [&](const auto& entry) { return entry.second.imported && entry.second.imported->memory == memory; });
    if (at == slabs_.end()) return {};
    slab = at->second.slab;
    anchor = at->second.imported->anchor;
    replaced = at->second.imported->keep(kept);
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
  if (imports_ == 0 || membership_->self() == kNobody) return;
  std::vector<Known> ended;
  const MutexLock lock(mutex_);
  ended = take_if([](const Known& known) { return known.imported && is_over(known); });
  if (!ended.empty()) works_.bury_without_keeper();
}

}  // namespace drover
