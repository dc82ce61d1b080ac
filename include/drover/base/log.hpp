// drover/base/log.hpp: the log of the library: levels, threshold, sink.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace drover {

/// Importance of a line, in rising order.
enum class LogLevel : std::uint8_t {
  debug,  ///< details for debugging drover itself
  info,   ///< choices that drover made for the user
  warn,   ///< something is wrong, but work continues
  error,  ///< something was lost
  off,    ///< as a threshold: log nothing
};

/// "debug", "info", "warn", "error" or "off".
[[nodiscard]] std::string_view to_string(LogLevel level) noexcept;

/// Receives each line at or above the threshold, without a newline. Called from any thread, possibly while locks are
/// held: it must not call drover.
using LogSink = void (*)(LogLevel level, std::string_view text) noexcept;

/// The default sink: writes `drover[PID] warn: TEXT` to standard error with a single write, so that lines of several
/// processes do not interleave.
void log_to_stderr(LogLevel level, std::string_view text) noexcept;

/// Replaces the sink of the process; nullptr restores `log_to_stderr`. Returns the previous sink.
LogSink set_log_sink(LogSink replacement) noexcept;

/// The threshold: DROVER_LOG, or `warn` if it is unset. An invalid DROVER_LOG is reported once.
[[nodiscard]] LogLevel log_threshold() noexcept;
/// Sets the threshold for this process.
void set_log_threshold(LogLevel level) noexcept;

/// Logs `text`, followed by `number` if given. Never throws and never allocates, so that destructors can use it.
void log(LogLevel level, std::string_view text, std::optional<std::int64_t> number = {}) noexcept;

}  // namespace drover
