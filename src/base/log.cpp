#include "drover/base/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>

#include <fmt/format.h>

#include "base/log_line.hpp"

namespace drover {
namespace {

constexpr std::array kLevels = {LogLevel::debug, LogLevel::info, LogLevel::warn, LogLevel::error, LogLevel::off};

std::atomic<LogSink> sink{&log_to_stderr};
std::atomic<LogLevel> threshold{LogLevel::warn};

LogLevel threshold_from_environment() noexcept {
  const char* const asked = std::getenv("DROVER_LOG");
  if (asked == nullptr || *asked == '\0') return LogLevel::warn;
  const auto* const found = std::ranges::find_if(kLevels, [&](LogLevel level) { return to_string(level) == asked; });
  if (found != kLevels.end()) return *found;
  log_to_stderr(LogLevel::warn, "DROVER_LOG is none of debug, info, warn, error, off; using warn");
  return LogLevel::warn;
}

void read_environment_once() noexcept {
  static const bool done = [] {
    threshold.store(threshold_from_environment(), std::memory_order_relaxed);
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace

std::string_view to_string(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug: return "debug";
    case LogLevel::info: return "info";
    case LogLevel::warn: return "warn";
    case LogLevel::error: return "error";
    case LogLevel::off: return "off";
  }
  return "unknown";
}

void log_to_stderr(LogLevel level, std::string_view text) noexcept {
  const LogLine line(level, text);
  const int saved = errno;
  // A failed write to standard error cannot be reported anywhere.
  [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, line.text().data(), line.text().size());
  errno = saved;
}

LogSink set_log_sink(LogSink replacement) noexcept {
  return sink.exchange(replacement == nullptr ? &log_to_stderr : replacement);
}

LogLevel log_threshold() noexcept {
  read_environment_once();
  return threshold.load(std::memory_order_relaxed);
}

void set_log_threshold(LogLevel level) noexcept {
  read_environment_once();
  threshold.store(level, std::memory_order_relaxed);
}

void log(LogLevel level, std::string_view text, std::optional<std::int64_t> number) noexcept {
  if (level < log_threshold() || level == LogLevel::off) return;
  if (!number) {
    sink.load()(level, text);
    return;
  }
  std::array<char, LogLine::kLongest> line{};
  const auto written = fmt::format_to_n(line.begin(), line.size(), "{}: {}", text, *number);
  sink.load()(level, {line.data(), static_cast<std::size_t>(written.out - line.begin())});
}

}  // namespace drover
