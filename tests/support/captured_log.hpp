// tests/support/captured_log.hpp: captures the log of drover.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "drover/base/log.hpp"

namespace drover::test {

/// Keeps the log lines at or above `threshold` instead of printing them. At most one exists at a time.
class CapturedLog {
 public:
  explicit CapturedLog(LogLevel threshold = LogLevel::debug);
  ~CapturedLog();
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  /// All lines so far, oldest first: "warn: close failed ...".
  [[nodiscard]] std::vector<std::string> lines() const;
  /// Whether any line contains `part`.
  [[nodiscard]] bool contains(std::string_view part) const;

 private:
  LogSink sink_before_;
  LogLevel threshold_before_;
};

}  // namespace drover::test
