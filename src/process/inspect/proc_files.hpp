// process/inspect/proc_files.hpp: small readers for files of /proc, which may be gone, huge or somebody else's.
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

namespace drover {

/// Opens a file for reading, closed on exec; never waits for a writer of a pipe, never takes a terminal over. Not open
/// on failure, with the reason in errno.
[[nodiscard]] Fd open_to_read(const std::filesystem::path& path);

/// The first `most` bytes of a file; nothing if it cannot be opened or read. Never waits for a writer.
[[nodiscard]] std::optional<std::string> read_proc_text(const std::filesystem::path& path, std::size_t most = 65536);

/// Where a symbolic link leads; empty if it cannot be read.
[[nodiscard]] std::string read_proc_link(const std::filesystem::path& path);

/// Names in a folder that are numbers, in rising order: processes, threads, descriptors. None if it cannot be read.
[[nodiscard]] std::vector<pid_t> numbers_in(const std::filesystem::path& folder);

/// What follows "Name:" in a file of such lines, without spaces around it; empty if there is no such line.
[[nodiscard]] std::string_view value_of(std::string_view text, std::string_view name);

/// The text as one line for a terminal of at most `most` characters: what is no printable ASCII becomes '?', the rest
/// is cut with "...".
[[nodiscard]] std::string printable(std::string_view text, std::size_t most);

/// A whole number at the begin of a text; nothing if there is none.
template <class Number>
[[nodiscard]] std::optional<Number> leading_number(std::string_view text, int base = 10) noexcept {
  Number number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return number;
}

}  // namespace drover
