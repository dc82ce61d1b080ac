// ipc/ledger/slab_layout.hpp: the shared object of a slab, beside its file: a ledger of its blocks and leases.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "ipc/ledger/slab_ledger.hpp"
#include "ipc/object/object_kind.hpp"

namespace drover::ipc {

/// What the part that makes slabs stores about one, such as its device. Kept by the keeper.
using SlabMarks = std::array<std::uint64_t, 3>;

inline constexpr std::uint64_t kMaxSlabBytes = std::uint64_t{1} << 42U;

/// The spec of the ledger of a slab of `bytes`.
[[nodiscard]] ObjectSpec slab_spec(std::uint64_t bytes, const SlabMarks& marks);
/// The size of the smallest slab for one block of `bytes`, in multiples of `unit`, a power of two. Requires: bytes <=
/// kMaxSlabBytes.
[[nodiscard]] std::uint64_t whole_slab_bytes(std::uint64_t bytes, std::uint64_t unit);
/// The marks given to `slab_spec`.
[[nodiscard]] SlabMarks marks_of(const ObjectSpec& spec) noexcept;
/// Size of the slab's memory.
[[nodiscard]] inline std::uint64_t slab_bytes(const ObjectSpec& spec) noexcept { return spec.parameters[0]; }

/// Reads a spec; throws `Errc::invalid_argument`, with the limits, for impossible parameters. Blocks start at
/// multiples of 512 bytes, or of more in slabs over 128 MiB.
[[nodiscard]] LedgerGeometry slab_geometry(const ObjectSpec& spec);

/// For the keeper, instead of ObjectKindInfo::recover, since only the object table knows the leases in messages:
/// `SlabLedger::recover`.
void recover_slab(std::byte* layout, const ObjectSpec& spec, Owner dead,
                  const std::function<bool(LeaseRef)>& is_referenced);

}  // namespace drover::ipc
