// drover/base/log.hpp: what drover says while it runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace drover {

/// How much a line matters.
enum class LogLevel : std::uint8_t {
  debug,  ///< for who hunts a bug in drover
  info,   ///< choices made for the user
  warn,   ///< something is odd, the work goes on
  error,  ///< something is lost
  off,    ///< as a threshold: say nothing
};

/// "debug", "info", "warn", "error" or "off".
[[nodiscard]] std::string_view to_string(LogLevel level) noexcept;

/// Receives each line that passes the threshold, without a final newline. Called from any thread, possibly
/// while locks are held: it must not call drover.
using LogSink = void (*)(LogLevel level, std::string_view text) noexcept;

/// Writes one line `drover[PID] warn: TEXT` to standard error with a single write, so that lines of several
/// processes do not mix. The default sink.
void log_to_stderr(LogLevel level, std::string_view text) noexcept;

/// Replaces the sink for the whole process; nullptr restores `log_to_stderr`. Returns the one before.
LogSink set_log_sink(LogSink replacement) noexcept;

/// The threshold: what DROVER_LOG says, else `warn`. A DROVER_LOG that is no level is reported once.
[[nodiscard]] LogLevel log_threshold() noexcept;
/// Sets the threshold for this process.
void set_log_threshold(LogLevel level) noexcept;

/// Says `text`, followed by `number` if there is one. Never throws and allocates nothing, so that
/// destructors and signal-sensitive code can use it.
void log(LogLevel level, std::string_view text, std::optional<std::int64_t> number = {}) noexcept;

}  // namespace drover
