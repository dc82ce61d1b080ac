// cli/output.hpp: writes text to standard output, in tables and colours.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace drover::cli {

/// Writes all of `text` to standard output. Ignores a reader that is gone (`| head`); throws on other errors, such as
/// a full disk.
void write_output(std::string_view text);

/// Aligns rows in columns that are two spaces apart; the first row is the heading. Requires: rows of equal length.
[[nodiscard]] std::string format_table(const std::vector<std::vector<std::string>>& rows);

/// Colours of a terminal.
enum class Colour { red, yellow, green, blue };

/// Whether to use colour: standard output is a terminal, NO_COLOR is unset or empty, and TERM is not "dumb".
[[nodiscard]] bool wants_colour();

/// `text` in bold `colour`, or unchanged unless `is_wanted`.
[[nodiscard]] std::string coloured(std::string_view text, Colour colour, bool is_wanted);

}  // namespace drover::cli
