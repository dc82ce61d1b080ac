// ipc/queue/cache_lines.hpp: whose core has the cache lines of a message. Only speed depends on it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ipc/object/object_layout.hpp"

namespace drover {

/// Makes lines that this core reads its own, by writing one word of each as it is. A line that was only read stays
/// with the writer's core too, and its next write waits until all have given it up; a line that one core has for
/// itself is handed over several times as fast, and ahead of its use. Of no use to who has not read them.
/// Requires: only the caller may write here.
inline void take_over(std::byte* begin, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += kCacheLine) {
    auto* const word = reinterpret_cast<volatile std::uint64_t*>(begin + at);
    *word = *word;
  }
}

/// The same for a message that nobody needs any more: it is spoilt, which is faster than reading it again.
inline void take_over_spent(std::byte* begin, std::size_t bytes) noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);  // whatever type it was read as, that was before
  for (std::size_t at = 0; at < bytes; at += kCacheLine) *reinterpret_cast<volatile std::uint64_t*>(begin + at) = 0;
}

/// Fetches lines that this core will write soon.
inline void fetch_for_writing(const std::byte* begin, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(begin + at, 1);
}

}  // namespace drover
