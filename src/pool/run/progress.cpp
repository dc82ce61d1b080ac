#include "drover/pool/results.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace drover {
namespace {

constexpr std::chrono::milliseconds kEvery{100};
constexpr std::size_t kDefaultColumns = 80;
constexpr std::size_t kBarColumns = 24;

std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kDefaultColumns;
}

std::string rate_text(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.1f} M/s", per_second / 1e6);
  if (per_second >= 1e3) return fmt::format("{:.1f} k/s", per_second / 1e3);
  return fmt::format("{:.1f}/s", per_second);
}

std::string duration_text(double seconds) {
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 3600;
  constexpr double kYear = 365.0 * 24 * kHour;
  if (seconds > kYear) return "more than a year";
  const auto whole = std::int64_t{std::lround(std::max(0.0, seconds))};
  if (whole < kHour) return fmt::format("{}:{:02}", whole / kMinute, whole % kMinute);
  return fmt::format("{}:{:02}:{:02}", whole / kHour, whole % kHour / kMinute, whole % kMinute);
}

}  // namespace

std::string describe_progress(const std::string& title, const Progress& progress, Clock::time_point now,
                              std::size_t columns) {
  const double seconds = std::chrono::duration<double>(now - progress.began).count();
  const double rate = seconds > 0 ? static_cast<double>(progress.done) / seconds : 0;
  std::string text = title;
  if (progress.total > 0) {
    const double share = std::min(1.0, static_cast<double>(progress.done) / static_cast<double>(progress.total));
    const auto full = static_cast<std::size_t>(share * static_cast<double>(kBarColumns));
    text += fmt::format("  [{}{}]  {:3} %  {}/{}", std::string(full, '#'), std::string(kBarColumns - full, '.'),
                        static_cast<int>(100 * share), progress.done, progress.total);
  } else {
    text += fmt::format("  {} done", progress.done);
  }
  if (progress.failed > 0) text += fmt::format("  {} failed", progress.failed);
  text += fmt::format("  {}", rate_text(rate));
  if (progress.is_over) {
    text += fmt::format("  in {}", duration_text(seconds));
  } else if (progress.total > progress.done && rate > 0) {
    text += fmt::format("  {} left", duration_text(static_cast<double>(progress.total - progress.done) / rate));
  }
  return text.substr(0, columns);
}

std::function<void(const Progress&)> progress_bar(std::string title) {
  struct Shown {
    std::string title;
    bool is_terminal = ::isatty(STDERR_FILENO) == 1;
    Clock::time_point last;
  };
  return [shown = std::make_shared<Shown>(Shown{.title = std::move(title)})](const Progress& progress) {
    const auto now = Clock::now();
    if (!progress.is_over && (!shown->is_terminal || now - shown->last < kEvery)) return;
    shown->last = now;
    const auto columns = shown->is_terminal ? terminal_columns() - 1 : std::size_t{200};
    const auto text = describe_progress(shown->title, progress, now, columns);
    if (shown->is_terminal) {
      fmt::print(stderr, "\r{}\x1b[K{}", text, progress.is_over ? "\n" : "");
    } else {
      fmt::print(stderr, "{}\n", text);
    }
    static_cast<void>(std::fflush(stderr));
  };
}

}  // namespace drover
