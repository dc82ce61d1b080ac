// ipc/queue/cache_lines.hpp: which core owns the cache lines of a message. Affects speed only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ipc/object/object_layout.hpp"

namespace drover::ipc {

/// Makes this core the only owner of lines that it has read, by writing one word of each back unchanged. A line that
/// was only read is shared with the writer's core, whose next write must first invalidate it everywhere; a line owned
/// by one core is transferred several times faster, and ahead of its use. Requires: only the caller may write here.
inline void take_over(std::byte* begin, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += kCacheLine) {
    auto* const word = reinterpret_cast<volatile std::uint64_t*>(begin + at);
    *word = *word;
  }
}

/// The same for a message that is no longer needed: overwrites it, which is faster than reading it again.
inline void take_over_spent(std::byte* begin, std::size_t bytes) noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);  // after all reads, of whatever type
  for (std::size_t at = 0; at < bytes; at += kCacheLine) *reinterpret_cast<volatile std::uint64_t*>(begin + at) = 0;
}

/// Fetches lines that this core will write soon.
inline void fetch_for_writing(const std::byte* begin, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(begin + at, 1);
}

}  // namespace drover::ipc
