#include "ipc/slab_layout.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover {
namespace {

constexpr std::uint64_t kSmallestChunk = 512;
constexpr std::uint64_t kMostChunks = std::uint64_t{1} << 18U;
constexpr std::uint64_t kFewestLeases = 1024;

std::size_t layout_bytes(const ObjectSpec& spec) { return ledger_state_bytes(slab_geometry(spec)); }

void format(std::byte* layout, const ObjectSpec& spec) { format_ledger(layout, slab_geometry(spec)); }

void wake(std::byte* layout, const ObjectSpec& spec) { SlabLedger(layout, slab_geometry(spec)).wake_all(); }

// Nobody has it open: what is in use is kept, or on its way in a message.
bool is_needed(std::byte* layout, const ObjectSpec& spec) {
  const SlabLedger ledger(layout, slab_geometry(spec));
  ledger.settle();
  return ledger.used_blocks() > 0;
}

}  // namespace

ObjectSpec slab_spec(std::uint64_t bytes, const SlabMarks& marks) {
  return {.kind = ObjectKind::slab, .parameters = {bytes, marks[0], marks[1], marks[2]}};
}

SlabMarks marks_of(const ObjectSpec& spec) noexcept {
  return {spec.parameters[1], spec.parameters[2], spec.parameters[3]};
}

LedgerGeometry slab_geometry(const ObjectSpec& spec) {
  const std::uint64_t bytes = slab_bytes(spec);
  if (bytes < kSmallestChunk || bytes > kMaxSlabBytes) {
    throw Error(Errc::invalid_argument, fmt::format("a slab of {} bytes cannot be made", bytes),
                fmt::format("it has {} to {}", kSmallestChunk, kMaxSlabBytes));
  }
  std::uint64_t chunk = kSmallestChunk;
  while (bytes / chunk > kMostChunks) chunk *= 2;
  const std::uint64_t leases = std::max(kFewestLeases, 2 * (bytes / chunk));
  return {.pool = {.bytes = bytes, .chunk_bytes = static_cast<std::uint32_t>(chunk)},
          .leases = static_cast<std::uint32_t>(leases)};
}

void recover_slab(std::byte* layout, const ObjectSpec& spec, Owner dead,
                  const std::function<bool(LeaseRef)>& is_referenced) {
  SlabLedger(layout, slab_geometry(spec)).recover(dead, is_referenced);
}

const ObjectKindInfo slab_kind = {.layout_bytes = layout_bytes,
                                  .format = format,
                                  .recover = [](std::byte*, const ObjectSpec&, Owner) {},
                                  .wake_all = wake,
                                  .is_needed = is_needed,
                                  .has_file = true};

}  // namespace drover
