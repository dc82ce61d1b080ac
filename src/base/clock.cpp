#include "drover/base/clock.hpp"

#include <algorithm>
#include <limits>

namespace drover {

Deadline Deadline::after(Duration duration) noexcept {
  if (duration <= std::chrono::nanoseconds::zero()) return Deadline(Clock::time_point());
  const auto now = Clock::now();
  if (duration > Clock::time_point::max() - now) return never();
  return Deadline(now + duration);
}

std::chrono::nanoseconds Deadline::remaining() const noexcept {
  if (is_never()) return std::chrono::nanoseconds::max();
  const auto now = Clock::now();
  // Compare before subtracting: the difference to a moment far in the past would overflow.
  return moment_ <= now ? std::chrono::nanoseconds::zero() : std::chrono::nanoseconds(moment_ - now);
}

int Deadline::poll_timeout() const noexcept {
  if (is_never()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(remaining()).count();
  return static_cast<int>(std::min<decltype(left)>(left, std::numeric_limits<int>::max()));
}

}  // namespace drover
