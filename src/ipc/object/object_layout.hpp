// ipc/object/object_layout.hpp: the header of every shared object.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "drover/ipc/membership.hpp"

namespace drover::ipc {

inline constexpr std::uint32_t kObjectMagic = 0x52445246;  // "FRDR"
inline constexpr std::uint16_t kLayoutVersion = 4;
inline constexpr std::size_t kCacheLine = 64;

/// Written by the keeper only; read by all. The layout of the kind follows.
struct alignas(kCacheLine) ObjectHeader {
  std::uint32_t magic;                     ///< kObjectMagic while the object exists
  std::uint16_t version;                   ///< kLayoutVersion
  std::uint16_t kind;                      ///< ObjectKind
  std::uint64_t generation;                ///< as in the handle
  std::uint64_t departed_before;           ///< Population::departed at its creation
  std::atomic<std::uint32_t> openers;      ///< participants that have it open
  std::atomic<std::uint32_t> ever_opened;  ///< participants that ever opened it
  std::atomic<std::uint32_t> acquainted;   ///< present participants that ever opened it
  std::atomic<std::uint32_t> last_lost;    ///< pid of the last opener that died, or 0
};
static_assert(sizeof(ObjectHeader) == kCacheLine);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

inline ObjectHeader& header_of(std::byte* data) noexcept { return *reinterpret_cast<ObjectHeader*>(data); }
inline std::byte* layout_of(std::byte* data) noexcept { return data + sizeof(ObjectHeader); }

}  // namespace drover::ipc
