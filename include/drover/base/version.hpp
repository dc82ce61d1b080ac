// drover/base/version.hpp: the version of the library.
#pragma once

#include <string_view>

namespace drover {

/// The release, e.g. "0.1.0".
[[nodiscard]] std::string_view version() noexcept;

/// Release, source revision if known, build type and compiler, for bug reports.
[[nodiscard]] std::string_view version_details() noexcept;

}  // namespace drover
