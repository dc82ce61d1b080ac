#include "support/captured_log.hpp"

#include <algorithm>
#include <mutex>

namespace drover::test {
namespace {

struct Captured {
  std::mutex mutex;
  std::vector<std::string> lines;
};

Captured& captured() {
  static Captured everything;
  return everything;
}

void keep(LogLevel level, std::string_view text) noexcept {
  const std::scoped_lock lock(captured().mutex);
  captured().lines.push_back(std::string(to_string(level)).append(": ").append(text));
}

}  // namespace

CapturedLog::CapturedLog(LogLevel threshold) : sink_before_(set_log_sink(&keep)), threshold_before_(log_threshold()) {
  set_log_threshold(threshold);
}

CapturedLog::~CapturedLog() {
  set_log_threshold(threshold_before_);
  set_log_sink(sink_before_);
  const std::scoped_lock lock(captured().mutex);
  captured().lines.clear();
}

// Not static, although it could be: lines exist only during a capture.
std::vector<std::string> CapturedLog::lines() const {  // NOLINT(readability-convert-member-functions-to-static)
  const std::scoped_lock lock(captured().mutex);
  return captured().lines;
}

bool CapturedLog::contains(std::string_view part) const {
  return std::ranges::any_of(lines(), [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

}  // namespace drover::test
