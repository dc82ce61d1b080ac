// cli/output.hpp: text to standard output: whole, aligned, in colour where that helps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace drover::cli {

/// Writes all of `text` to standard output. A reader that has gone away (`| head`) is no error; anything else, such
/// as a full disk, throws.
void write_output(std::string_view text);

/// Rows in columns of equal width, two spaces apart; the first row is the heading. Every row has the same length.
[[nodiscard]] std::string format_table(const std::vector<std::vector<std::string>>& rows);

/// Colours of a terminal.
enum class Colour { red, yellow, green, blue };

/// Whether standard output is a terminal that wants colour: NO_COLOR is unset or empty and TERM is not "dumb".
[[nodiscard]] bool wants_colour();

/// `text` in bold `colour` where `is_wanted`, else as it is.
[[nodiscard]] std::string coloured(std::string_view text, Colour colour, bool is_wanted);

}  // namespace drover::cli
