#include "base/duration.hpp"

#include <fmt/format.h>

namespace drover {

std::string format_duration(std::chrono::nanoseconds duration) {
  const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(duration).count();
  const auto seconds = milliseconds / 1000;
  if (milliseconds <= 0) return "0 s";
  if (seconds < 1) return fmt::format("{} ms", milliseconds);
  if (seconds < 10) return fmt::format("{}.{} s", seconds, milliseconds / 100 % 10);
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  if (seconds < 86400) return fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
  return fmt::format("{} d {} h", seconds / 86400, seconds / 3600 % 24);
}

}  // namespace drover
