#include "drover/device/info.hpp"

#include <fmt/format.h>

namespace drover {

std::string_view to_string(BackendKind kind) noexcept { return kind == BackendKind::cuda ? "cuda" : "host"; }

std::string_view to_string(ComputeMode mode) noexcept {
  switch (mode) {
    case ComputeMode::shared: return "shared";
    case ComputeMode::exclusive_process: return "exclusive-process";
    case ComputeMode::prohibited: return "prohibited";
    case ComputeMode::unknown: break;
  }
  return "unknown";
}

std::string uuid_text(const DeviceInfo& info) {
  std::string text = to_string(info.uuid);
  return info.is_mig_instance ? text.replace(0, 3, "MIG") : text;
}

std::string device_id(const DeviceInfo& info) { return fmt::format("{}:{}", to_string(info.backend), info.index); }

}  // namespace drover
