#include "drover/base/version.hpp"

namespace drover {

std::string_view version() noexcept { return DROVER_VERSION; }

std::string_view version_details() noexcept {
  return "drover " DROVER_VERSION " (" DROVER_REVISION ", " DROVER_BUILD_TYPE ", " DROVER_COMPILER ")";
}

}  // namespace drover
