// observe/text_files.hpp: readers and parsers for the text files of /proc and /sys.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drover::observe {

/// The content of a file; empty if it cannot be read.
[[nodiscard]] std::string read_text(const std::filesystem::path& path);

/// Without leading and trailing white space.
[[nodiscard]] std::string_view trimmed(std::string_view text) noexcept;

/// The pieces between separators, including empty ones; none for an empty text.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);

/// The words separated by white space.
[[nodiscard]] std::vector<std::string_view> words(std::string_view text);

/// The text as an integer, ignoring surrounding white space; nullopt for any other text, such as "max".
[[nodiscard]] std::optional<std::uint64_t> number(std::string_view text) noexcept;

/// The number after `name` in lines such as "inactive_file 4096" or "MemTotal:  16 kB"; nullopt if there is none.
[[nodiscard]] std::optional<std::uint64_t> number_after(std::string_view text, std::string_view name);

/// Sorted names in a directory; none if it cannot be read.
[[nodiscard]] std::vector<std::string> names_in(const std::filesystem::path& folder);

}  // namespace drover::observe
