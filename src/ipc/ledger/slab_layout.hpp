// ipc/ledger/slab_layout.hpp: what a slab is in shared memory, beside its file: a ledger of its blocks and leases.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "ipc/ledger/slab_ledger.hpp"
#include "ipc/object/object_kind.hpp"

namespace drover {

/// What the part that makes slabs wants to know of one later, such as its device. Kept by the keeper.
using SlabMarks = std::array<std::uint64_t, 3>;

inline constexpr std::uint64_t kMaxSlabBytes = std::uint64_t{1} << 42U;

/// From what the keeper makes the ledger of a slab of `bytes`.
[[nodiscard]] ObjectSpec slab_spec(std::uint64_t bytes, const SlabMarks& marks);
/// The smallest size of a slab in which one block of `bytes` fits, in multiples of `unit`, a power of two. Requires:
/// bytes <= kMaxSlabBytes.
[[nodiscard]] std::uint64_t whole_slab_bytes(std::uint64_t bytes, std::uint64_t unit);
/// What `slab_spec` was told.
[[nodiscard]] SlabMarks marks_of(const ObjectSpec& spec) noexcept;
/// Size of the slab's memory.
[[nodiscard]] inline std::uint64_t slab_bytes(const ObjectSpec& spec) noexcept { return spec.parameters[0]; }

/// Reads a spec; throws `Errc::invalid_argument`, with the limits, for parameters that cannot be. Blocks begin at
/// multiples of 512 bytes, in slabs over 128 MiB of more.
[[nodiscard]] LedgerGeometry slab_geometry(const ObjectSpec& spec);

/// For the keeper, instead of ObjectKindInfo::recover, since only the whole table knows what messages refer to:
/// `SlabLedger::recover`.
void recover_slab(std::byte* layout, const ObjectSpec& spec, Owner dead,
                  const std::function<bool(LeaseRef)>& is_referenced);

extern const ObjectKindInfo slab_kind;

}  // namespace drover
