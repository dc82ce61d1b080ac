// drover/base/clock.hpp: monotonic time and deadlines.
#pragma once

#include <chrono>
#include <cstdint>
#include <ratio>
#include <type_traits>
#include <utility>

namespace drover {

/// The clock of every wait: monotonic, the same in all processes of a machine, and never adjusted.
using Clock = std::chrono::steady_clock;

/// A length of time, made from any duration. What nanoseconds cannot express, such as `hours::max()` or an infinite
/// number of seconds, becomes the longest or the shortest one instead of overflowing; not a number becomes zero.
class Duration : public std::chrono::nanoseconds {
 public:
  /// Zero.
  constexpr Duration() noexcept : std::chrono::nanoseconds(0) {}
  /// Converts.
  template <class Rep, class Period>
  constexpr Duration(std::chrono::duration<Rep, Period> from) noexcept  // NOLINT(google-explicit-constructor)
      : std::chrono::nanoseconds(saturated(from)) {}

  /// Longer than anything that is waited for: about 292 years.
  [[nodiscard]] static constexpr Duration forever() noexcept { return std::chrono::nanoseconds::max(); }
  /// Whether it is that.
  [[nodiscard]] constexpr bool is_forever() const noexcept { return *this == std::chrono::nanoseconds::max(); }

 private:
  template <class Rep, class Period>
  static constexpr std::chrono::nanoseconds saturated(std::chrono::duration<Rep, Period> from) noexcept {
    using std::chrono::nanoseconds;
    if constexpr (std::chrono::treat_as_floating_point_v<Rep>) {
      const auto count = std::chrono::duration<long double, std::nano>(from).count();
      if (count != count) return nanoseconds(0);  // NOLINT(misc-redundant-expression): not a number
      if (count >= static_cast<long double>(nanoseconds::max().count())) return nanoseconds::max();
      if (count <= static_cast<long double>(nanoseconds::min().count())) return nanoseconds::min();
      return nanoseconds(static_cast<nanoseconds::rep>(count));
    } else if constexpr (std::ratio_greater_v<Period, std::nano>) {
      using Longest = std::chrono::duration<std::int64_t, Period>;
      const auto most = std::chrono::duration_cast<Longest>(nanoseconds::max()).count();
      if (std::cmp_greater(from.count(), most)) return nanoseconds::max();
      if (std::cmp_less(from.count(), -most)) return nanoseconds::min();
      return std::chrono::duration_cast<nanoseconds>(Longest(static_cast<std::int64_t>(from.count())));
    } else {
      return std::chrono::duration_cast<nanoseconds>(from);
    }
  }
};

/// The moment at which a wait gives up; every call that waits takes one. A small value type.
class Deadline {
 public:
  /// Never passes.
  [[nodiscard]] static Deadline never() noexcept { return Deadline(Clock::time_point::max()); }
  /// Passes `duration` from now. Zero or less has passed already, without reading the clock; a duration beyond the
  /// range of the clock never passes.
  [[nodiscard]] static Deadline after(Duration duration) noexcept;
  /// Passes at `moment`.
  [[nodiscard]] static Deadline at(Clock::time_point moment) noexcept { return Deadline(moment); }

  /// Whether it never passes.
  [[nodiscard]] bool is_never() const noexcept { return moment_ == Clock::time_point::max(); }
  /// Whether it has passed.
  [[nodiscard]] bool has_passed() const noexcept {
    return moment_ <= Clock::time_point() || (!is_never() && Clock::now() >= moment_);
  }
  /// Time left, never negative; nanoseconds::max() if it never passes.
  [[nodiscard]] std::chrono::nanoseconds remaining() const noexcept;
  /// Time left in milliseconds for `poll`: rounded up, -1 if it never passes.
  [[nodiscard]] int poll_timeout() const noexcept;
  /// The moment itself.
  [[nodiscard]] Clock::time_point moment() const noexcept { return moment_; }

 private:
  explicit Deadline(Clock::time_point moment) noexcept : moment_(moment) {}
  Clock::time_point moment_;
};

/// How a wait with a deadline ended.
enum class [[nodiscard]] WaitResult {
  done,       ///< the awaited event has happened
  timed_out,  ///< the deadline passed first; nothing has changed
};

}  // namespace drover
