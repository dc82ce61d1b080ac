// ipc/wake/futex.hpp: the system call under every sleep on a word in shared memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace drover {

/// Sleeps while `word` is `expected`, at most `longest`. Returns false if that time passed. May return early.
bool futex_sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::nanoseconds longest) noexcept;

/// The same on the low half of a 64-bit word, which must change with whatever is waited for.
bool futex_sleep(std::atomic<std::uint64_t>& word, std::uint64_t expected, std::chrono::nanoseconds longest) noexcept;

/// Wakes at most `count` of those who sleep on `word`.
void futex_wake(std::atomic<std::uint32_t>& word, int count) noexcept;
/// The same for those who sleep on the low half.
void futex_wake(std::atomic<std::uint64_t>& word, int count) noexcept;

}  // namespace drover
