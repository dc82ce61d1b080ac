// observe/text_files.hpp: small readers for the text files of /proc and /sys; private to the library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drover::observe {

/// The whole file; empty when it cannot be read.
[[nodiscard]] std::string read_text(const std::filesystem::path& path);

/// Without spaces and line ends at both sides.
[[nodiscard]] std::string_view trimmed(std::string_view text) noexcept;

/// The pieces between separators, empty ones included; nothing for an empty text.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);

/// The words between runs of spaces, tabs and line ends.
[[nodiscard]] std::vector<std::string_view> words(std::string_view text);

/// A whole number that fills the text, spaces aside; nothing for anything else, "max" included.
[[nodiscard]] std::optional<std::uint64_t> number(std::string_view text) noexcept;

/// The number after `name` in lines such as "inactive_file 4096" or "MemTotal:  16 kB"; nothing when it is not there.
[[nodiscard]] std::optional<std::uint64_t> number_after(std::string_view text, std::string_view name);

/// Names in a folder, sorted; none when it cannot be read.
[[nodiscard]] std::vector<std::string> names_in(const std::filesystem::path& folder);

}  // namespace drover::observe
