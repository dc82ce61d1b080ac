#include "ipc/wake/sleep_on_many.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "base/sys.hpp"

namespace drover::ipc {
namespace {

// As the kernel defines them; older headers lack them.
constexpr long kFutexWaitv = 449;
constexpr std::uint32_t kFutex32Bits = 2;
struct WaitVector {
  std::uint64_t value;
  std::uint64_t address;
  std::uint32_t flags;
  std::uint32_t reserved;
};

timespec moment_after(std::chrono::nanoseconds duration) noexcept {
  timespec now{};
  static_cast<void>(::clock_gettime(CLOCK_MONOTONIC, &now));
  const auto sum = std::chrono::nanoseconds(now.tv_nsec) + duration;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(sum);
  return {.tv_sec = now.tv_sec + seconds.count(), .tv_nsec = (sum - seconds).count()};
}

int wait_for_any(const WaitVector* waits, std::size_t count, const timespec* until) noexcept {
  return static_cast<int>(::syscall(kFutexWaitv, waits, count, 0, until, CLOCK_MONOTONIC));
}

}  // namespace

void sleep_on_many(std::span<Bell* const> bells, std::span<const std::uint32_t> announced,
                   std::chrono::nanoseconds longest) noexcept {
  std::array<WaitVector, kMostBells> waits{};
  const std::size_t count = std::min(bells.size(), kMostBells);
  for (std::size_t i = 0; i < count; ++i) {
    waits.at(i) = {.value = announced[i],
                   .address = reinterpret_cast<std::uint64_t>(&bells[i]->word),
                   .flags = kFutex32Bits,
                   .reserved = 0};
  }
  constexpr std::chrono::nanoseconds kShort = std::chrono::milliseconds(1);
  const timespec until = moment_after(bells.size() > kMostBells ? std::min(longest, kShort) : longest);
  const int woken =
      sys::call("futex_waitv", wait_for_any, static_cast<const WaitVector*>(waits.data()), count, &until);
  if (woken < 0 && (errno == ENOSYS || errno == EPERM)) {
    sleep_on(*bells[0], announced[0], std::min(longest, kShort));
  }
}

}  // namespace drover::ipc
