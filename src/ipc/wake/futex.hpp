// ipc/wake/futex.hpp: the futex system call on a word in shared memory. sleep_on_many.hpp has it for several words.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace drover::ipc {

/// Sleeps while `word` is `expected`, at most `longest`. Returns false if that time passed. May return early.
bool futex_sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::nanoseconds longest) noexcept;

/// The same on the low half of a 64-bit word, which must change with the condition that is waited for.
bool futex_sleep(std::atomic<std::uint64_t>& word, std::uint64_t expected, std::chrono::nanoseconds longest) noexcept;

/// Wakes at most `count` sleepers on `word`, or on its low half; returns how many it woke.
long futex_wake(std::atomic<std::uint32_t>& word, int count) noexcept;
long futex_wake(std::atomic<std::uint64_t>& word, int count) noexcept;

}  // namespace drover::ipc
