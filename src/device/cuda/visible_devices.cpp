#include "device/cuda/visible_devices.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace drover::device::cuda {
namespace {

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> entries;
  while (!text.empty()) {
    const auto comma = text.find(',');
    std::string_view entry = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    entries.emplace_back(entry);
  }
  return entries;
}

// CUDA reads the leading digits of an entry and ignores the rest.
std::optional<std::size_t> by_number(std::string_view entry, std::size_t count) {
  std::size_t number = 0;
  const auto parsed = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  if (parsed.ec != std::errc{} || number >= count) return std::nullopt;
  return number;
}

// A prefix of a UUID counts only if it matches exactly one device.
std::optional<std::size_t> by_uuid(std::string_view entry, const std::vector<DeviceInfo>& present) {
  const bool is_instance = entry.starts_with("MIG-");
  if (!is_instance && !entry.starts_with("GPU-")) return std::nullopt;
  std::optional<std::size_t> found;
  for (std::size_t place = 0; place < present.size(); ++place) {
    const DeviceInfo& info = present[place];
    if (info.is_mig_instance != is_instance) continue;
    if (!std::string_view(to_string(info.uuid)).substr(4).starts_with(entry.substr(4))) continue;
    if (found) return std::nullopt;
    found = place;
  }
  return found;
}

void keep_one_instance(VisibleDevices& visible, const std::vector<DeviceInfo>& present) {
  const auto is_instance = [&](std::size_t place) { return present[place].is_mig_instance; };
  const auto first = std::ranges::find_if(visible.order, is_instance);
  if (first != visible.order.end()) visible.order = {*first};
}

}  // namespace

VisibleDevices apply_visible_devices(const std::optional<std::string>& setting,
                                     const std::vector<DeviceInfo>& present) {
  VisibleDevices visible;
  if (!setting) {
    for (std::size_t place = 0; place < present.size(); ++place) visible.order.push_back(place);
    keep_one_instance(visible, present);
    return visible;
  }
  const auto entries = split(*setting);
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    auto place = by_number(*entry, present.size());
    if (!place) place = by_uuid(*entry, present);
    const bool is_repeated = place && std::ranges::find(visible.order, *place) != visible.order.end();
    if (is_repeated) visible.order.clear();
    if (!place || is_repeated) {
      visible.unmatched.assign(entry, entries.end());
      break;
    }
    visible.order.push_back(*place);
  }
  keep_one_instance(visible, present);
  return visible;
}

}  // namespace drover::device::cuda
