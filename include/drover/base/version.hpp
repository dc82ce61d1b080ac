// drover/base/version.hpp: which drover this is.
#pragma once

#include <string_view>

namespace drover {

/// The release, e.g. "0.1.0".
[[nodiscard]] std::string_view version() noexcept;

/// Release, source revision where known, build type and compiler, for bug reports.
[[nodiscard]] std::string_view version_details() noexcept;

}  // namespace drover
