// tests/support/captured_log.hpp: what drover says, for tests to look at.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "drover/base/log.hpp"

namespace drover::test {

/// While it lives, log lines that pass `threshold` are kept instead of shown. One at a time.
class CapturedLog {
 public:
  /// Begins to listen.
  explicit CapturedLog(LogLevel threshold = LogLevel::debug);
  ~CapturedLog();
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  /// So far, oldest first: "warn: close failed ...".
  [[nodiscard]] std::vector<std::string> lines() const;
  /// Whether some line contains `part`.
  [[nodiscard]] bool contains(std::string_view part) const;

 private:
  LogSink sink_before_;
  LogLevel threshold_before_;
};

}  // namespace drover::test
