#include "tensor/memory/slab_table.hpp"

namespace drover::tensor {

// Peers hold a lease before they open a handle, so without leases only handles that are still open remain.
bool SlabEntry::is_import_unused() const noexcept {
  if (claims > 0 || imported->anchor.use_count() > 1) return false;
  return ipc::OpenLedger::is_only(*imported->anchor) && (!slab->is_by_handle() || slab->is_alone());
}

std::uint64_t SlabTable::claimed_at(const Place& place) const {
  const auto at = claimed.find(place);
  return at == claimed.end() ? 0 : at->second;
}

std::vector<SlabEntry> SlabTable::take_if(const std::function<bool(const SlabEntry&)>& is_taken) {
  std::vector<SlabEntry> taken;
  for (auto at = entries.begin(); at != entries.end();) {
    if (!is_taken(at->second)) {
      ++at;
      continue;
    }
    if (at->second.imported) --import_count;
    taken.push_back(std::move(at->second));
    at = entries.erase(at);
  }
  return taken;
}

}  // namespace drover::tensor
