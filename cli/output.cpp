#include "output.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "base/config.hpp"
#include "drover/base/error.hpp"

namespace drover::cli {

void write_output(std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      return;
    } else if (errno != EINTR) {
      throw_errno("write", "standard output");
    }
  }
}

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.empty() ? 0 : rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row.at(i).size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) text += fmt::format("{:<{}}  ", row.at(i), widths[i]);
    text += row.back() + "\n";
  }
  return text;
}

bool wants_colour() {
  const bool is_refused = environment("NO_COLOR").has_value() || environment("TERM") == "dumb";
  return !is_refused && ::isatty(STDOUT_FILENO) == 1;
}

std::string coloured(std::string_view text, Colour colour, bool is_wanted) {
  if (!is_wanted) return std::string(text);
  const auto code = [&] {
    switch (colour) {
      case Colour::red: return 31;
      case Colour::yellow: return 33;
      case Colour::green: return 32;
      case Colour::blue: return 34;
    }
    return 0;
  }();
  return fmt::format("\033[1;{}m{}\033[0m", code, text);
}

}  // namespace drover::cli
