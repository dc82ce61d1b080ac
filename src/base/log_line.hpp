// base/log_line.hpp: the line that a sink writes.
#pragma once

#include <unistd.h>

#include <array>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

#include "drover/base/log.hpp"

namespace drover {

/// `drover[PID] warn: TEXT` and a newline, truncated so that a pipe takes it in one piece. Allocates nothing.
class LogLine {
 public:
  static constexpr std::size_t kLongest = 1024;  ///< bytes, including the newline

  LogLine(LogLevel level, std::string_view text) noexcept {
    const auto written =
        fmt::format_to_n(bytes_.begin(), bytes_.size() - 1, "drover[{}] {}: {}", ::getpid(), to_string(level), text);
    *written.out = '\n';
    size_ = static_cast<std::size_t>(written.out - bytes_.begin()) + 1;
  }

  /// The whole line.
  [[nodiscard]] std::string_view text() const noexcept { return {bytes_.data(), size_}; }

 private:
  std::array<char, kLongest> bytes_{};
  std::size_t size_ = 0;
};

}  // namespace drover
