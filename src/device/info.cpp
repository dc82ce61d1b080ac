#include "drover/device/info.hpp"

#include <charconv>

#include <fmt/format.h>

namespace drover {
namespace {

constexpr std::size_t kTextLength = 36;

bool has_dash_at(std::size_t place) { return place == 8 || place == 13 || place == 18 || place == 23; }

}  // namespace

std::string to_string(const Uuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid.bytes.at(i));
  }
  return text;
}

std::optional<Uuid> parse_uuid(std::string_view text) {
  if (text.starts_with("GPU-") || text.starts_with("MIG-")) text.remove_prefix(4);
  if (text.size() != kTextLength) return std::nullopt;
  Uuid uuid;
  std::size_t next = 0;
  for (std::size_t place = 0; place < text.size();) {
    if (has_dash_at(place)) {
      if (text[place++] != '-') return std::nullopt;
      continue;
    }
    const char* const digits = text.data() + place;
    const auto parsed = std::from_chars(digits, digits + 2, uuid.bytes.at(next++), 16);
    if (parsed.ec != std::errc{} || parsed.ptr != digits + 2) return std::nullopt;
    place += 2;
  }
  return uuid;
}

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
