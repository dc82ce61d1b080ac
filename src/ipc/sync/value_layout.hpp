// ipc/sync/value_layout.hpp: what a Value is in shared memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "drover/ipc/value.hpp"
#include "ipc/object/object_kind.hpp"
#include "ipc/wake/cell_lock.hpp"

namespace drover {

/// 1. The value is `copies[version % 2]`. Writers hold the lock, write the other copy, and raise the version by one:
///    that store is the commit. A writer killed before it has changed nothing that anybody reads.
/// 2. A reader copies and looks whether the version is as before. If not, its copy may have been written over; the
///    words are atomic, so that this is no data race, and it tries again.
struct ValueLayout {
  static constexpr std::size_t kWords = detail::ValueBytes::kMost / sizeof(std::uint64_t);
  using Copy = std::array<std::atomic<std::uint64_t>, kWords>;

  CellLockLayout lock;
  alignas(kCacheLine) std::atomic<std::uint64_t> version;
  alignas(kCacheLine) std::array<Copy, 2> copies;
};
static_assert(std::is_standard_layout_v<ValueLayout>);

extern const ObjectKindInfo value_kind;

}  // namespace drover
