#include "tensor/memory/held_parts.hpp"

#include <algorithm>

#include "ipc/ledger/open_ledger.hpp"

namespace drover::tensor {
namespace {

// Unique among the parts of a block unless one of them is held while 2^32 others are made. 0 is the whole block.
std::uint32_t next_part() noexcept {
  static std::atomic<std::uint32_t> last{0};
  std::uint32_t part = ++last;
  while (part == 0) part = ++last;
  return part;
}

}  // namespace

// The lease exists before the part is held: a check in between must not find a part without leases.
Lease HeldParts::hold(const Lease& whole, std::uint64_t bytes, std::shared_ptr<void> keep_alive) {
  const std::uint32_t part = next_part();
  Lease lease = ipc::OpenLedger::share_part(whole, part);
  const Name name{whole.slab().generation, whole.offset()};
  const MutexLock lock(mutex_);
  auto at = blocks_.find(name);
  if (at == blocks_.end())
    at = blocks_.try_emplace(name, Divided{.anchor = ipc::OpenLedger::share_part(whole, 0)}).first;
  at->second.parts.insert_or_assign(part, Part{.keep_alive = std::move(keep_alive), .bytes = bytes});
  ++count_;
  bytes_ += bytes;
  return lease;
}

std::vector<std::shared_ptr<void>> HeldParts::take_unused() {
  if (!has_any()) return {};
  std::vector<std::shared_ptr<void>> unused;
  const MutexLock lock(mutex_);
  for (auto at = blocks_.begin(); at != blocks_.end();) {
    Divided& block = at->second;
    const auto used = ipc::OpenLedger::parts_of(block.anchor);
    if (used) {
      std::erase_if(block.parts, [&](auto& part) {
        if (std::ranges::binary_search(*used, part.first)) return false;
        bytes_ -= part.second.bytes;
        unused.push_back(std::move(part.second.keep_alive));
        return true;
      });
    }
    at = block.parts.empty() ? blocks_.erase(at) : std::next(at);
  }
  count_ -= unused.size();
  due_at_ = 2 * bytes_ + kFirstDue;
  return unused;
}

}  // namespace drover::tensor
