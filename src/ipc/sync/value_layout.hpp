// ipc/sync/value_layout.hpp: a Value in shared memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "drover/ipc/value.hpp"
#include "ipc/object/object_kind.hpp"
#include "ipc/wake/cell_lock.hpp"

namespace drover::ipc {

/// 1. The value is `copies[version % 2]`. Writers hold the lock, write the other copy, and increase the version: that
///    store is the commit. A writer killed before it has changed nothing that anybody reads.
/// 2. A reader copies the value and checks that the version is unchanged. Otherwise its copy may have been
///    overwritten, and it retries; the words are atomic, so this is no data race.
struct ValueLayout {
  static constexpr std::size_t kWords = detail::ValueBytes::kMost / sizeof(std::uint64_t);
  using Copy = std::array<std::atomic<std::uint64_t>, kWords>;

  CellLockLayout lock;
  alignas(kCacheLine) std::atomic<std::uint64_t> version;
  alignas(kCacheLine) std::array<Copy, 2> copies;
};
static_assert(std::is_standard_layout_v<ValueLayout>);

}  // namespace drover::ipc
