// process/inspect/proc_files.hpp: readers for files of /proc, which may vanish, be huge, or belong to another user.
#pragma once

#include <sys/types.h>

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "drover/base/fd.hpp"

namespace drover::process {

/// Opens a file for reading, closed on exec, without blocking and without acquiring a controlling terminal. Not open
/// on failure, with the reason in errno.
[[nodiscard]] Fd open_to_read(const std::filesystem::path& path);

/// Reads at most `most` bytes of a file; nullopt if it cannot be opened or read. Does not block.
[[nodiscard]] std::optional<std::string> read_proc_text(const std::filesystem::path& path, std::size_t most = 65536);

/// The target of a symbolic link; empty if it cannot be read.
[[nodiscard]] std::string read_proc_link(const std::filesystem::path& path);

/// The numeric names in a directory, ascending: processes, threads, descriptors. Empty if it cannot be read.
[[nodiscard]] std::vector<pid_t> numbers_in(const std::filesystem::path& folder);

/// The trimmed text after "Name:" in a file of such lines; empty if there is no such line.
[[nodiscard]] std::string_view value_of(std::string_view text, std::string_view name);

/// Makes a text safe for one line of a terminal: characters other than printable ASCII become '?', and a text longer
/// than `most` characters is cut with "...".
[[nodiscard]] std::string printable(std::string_view text, std::size_t most);

/// Parses the integer at the start of a text; nullopt if there is none.
template <class Number>
[[nodiscard]] std::optional<Number> leading_number(std::string_view text, int base = 10) noexcept {
  Number number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return number;
}

}  // namespace drover::process
