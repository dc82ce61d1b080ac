#include "ipc/wake/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <ctime>

namespace drover::ipc {
namespace {

static_assert(std::endian::native == std::endian::little, "the low half of a word lies at its address");

// Not the private operations: the word is shared between processes.
bool sleep_at(void* address, std::uint32_t expected, std::chrono::nanoseconds longest) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (longest - seconds).count()};
  return ::syscall(SYS_futex, address, FUTEX_WAIT, expected, &time, nullptr, 0) == 0 || errno != ETIMEDOUT;
}

long wake_at(void* address, int count) noexcept {
  return ::syscall(SYS_futex, address, FUTEX_WAKE, count, nullptr, nullptr, 0);
}

}  // namespace

bool futex_sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                 std::chrono::nanoseconds longest) noexcept {
  return sleep_at(&word, expected, longest);
}

bool futex_sleep(std::atomic<std::uint64_t>& word, std::uint64_t expected,
                 std::chrono::nanoseconds longest) noexcept {
  return sleep_at(&word, static_cast<std::uint32_t>(expected), longest);
}

long futex_wake(std::atomic<std::uint32_t>& word, int count) noexcept { return wake_at(&word, count); }

long futex_wake(std::atomic<std::uint64_t>& word, int count) noexcept { return wake_at(&word, count); }

}  // namespace drover::ipc
