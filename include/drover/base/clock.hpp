// drover/base/clock.hpp: monotonic time and deadlines.
#pragma once

#include <chrono>

namespace drover {

/// The clock of every wait: monotonic, the same in all processes of a machine, and never adjusted.
using Clock = std::chrono::steady_clock;

/// The moment at which a wait gives up; every call that waits takes one. A small value type.
class Deadline {
 public:
  /// Never passes.
  [[nodiscard]] static Deadline never() noexcept { return Deadline(Clock::time_point::max()); }
  /// Passes `duration` from now. Zero or less has passed already, without reading the clock; a duration beyond the
  /// range of the clock never passes.
  [[nodiscard]] static Deadline after(std::chrono::nanoseconds duration) noexcept;
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
