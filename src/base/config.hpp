// base/config.hpp: settings from environment variables, with clear errors for invalid values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace drover {

/// The text of the variable; nullopt if it is unset or empty.
[[nodiscard]] std::optional<std::string> environment(const char* name);

/// The same for a variable that names a file or a directory. nullopt too in a program with more rights than its
/// caller (set-user-id, file capabilities), which must not open, load or run what its caller names.
[[nodiscard]] std::optional<std::string> environment_path(const char* name);

/// An integer within [least, most], or `fallback` if the variable is unset. Throws `Errc::invalid_argument` with the
/// variable, its text and the range.
[[nodiscard]] std::int64_t environment_number(const char* name, std::int64_t fallback, std::int64_t least,
                                              std::int64_t most);

/// A size such as "4GiB", at least 1, or `fallback` if the variable is unset. Throws as above.
[[nodiscard]] std::uint64_t environment_bytes(const char* name, std::uint64_t fallback);

}  // namespace drover
