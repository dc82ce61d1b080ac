#include "ipc/ledger/slab_layout.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::ipc {
namespace {

constexpr std::uint64_t kSmallestSlabChunk = 512;
constexpr std::uint64_t kMostSlabChunks = std::uint64_t{1} << 18U;
constexpr std::uint64_t kFewestLeases = 1024;

std::uint64_t chunk_for(std::uint64_t bytes) {
  std::uint64_t chunk = kSmallestSlabChunk;
  while (bytes / chunk > kMostSlabChunks) chunk *= 2;
  return chunk;
}

std::size_t ledger_bytes(const ObjectSpec& spec) { return ledger_state_bytes(slab_geometry(spec)); }

void format_slab(std::byte* layout, const ObjectSpec& spec) { format_ledger(layout, slab_geometry(spec)); }

void wake_slab(std::byte* layout, const ObjectSpec& spec) { SlabLedger(layout, slab_geometry(spec)).wake_all(); }

}  // namespace

ObjectSpec slab_spec(std::uint64_t bytes, const SlabMarks& marks) {
  return {.kind = ObjectKind::slab, .parameters = {bytes, marks[0], marks[1], marks[2]}};
}

std::uint64_t whole_slab_bytes(std::uint64_t bytes, std::uint64_t unit) {
  for (;;) {
    const std::uint64_t step = std::max(unit, chunk_for(bytes));
    const std::uint64_t whole = (bytes + step - 1) / step * step;
    if (chunk_for(whole) <= step) return whole;
    bytes = whole;  // rounding up has made chunks larger
  }
}

SlabMarks marks_of(const ObjectSpec& spec) noexcept {
  return {spec.parameters[1], spec.parameters[2], spec.parameters[3]};
}

LedgerGeometry slab_geometry(const ObjectSpec& spec) {
  const std::uint64_t bytes = slab_bytes(spec);
  if (bytes < kSmallestSlabChunk || bytes > kMaxSlabBytes) {
    throw Error(Errc::invalid_argument, fmt::format("cannot make a slab of {} bytes", bytes),
                fmt::format("use {} to {} bytes", kSmallestSlabChunk, kMaxSlabBytes));
  }
  const std::uint64_t chunk = chunk_for(bytes);
  const std::uint64_t leases = std::max(kFewestLeases, 2 * (bytes / chunk));
  return {.pool = {.bytes = bytes, .chunk_bytes = static_cast<std::uint32_t>(chunk)},
          .leases = static_cast<std::uint32_t>(leases)};
}

void recover_slab(std::byte* layout, const ObjectSpec& spec, Owner dead,
                  const std::function<bool(LeaseRef)>& is_referenced) {
  SlabLedger(layout, slab_geometry(spec)).recover(dead, is_referenced);
}

const ObjectKindInfo slab_kind = {.layout_bytes = ledger_bytes,
                                  .format = format_slab,
                                  .recover = [](std::byte*, const ObjectSpec&, Owner) {},
                                  .wake_all = wake_slab,
                                  .has_file = true};

}  // namespace drover::ipc
