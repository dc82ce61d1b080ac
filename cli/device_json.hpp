// cli/device_json.hpp: devices and the driver's report as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "drover/device/info.hpp"

namespace drover::cli {

/// Keeps keys in insertion order.
using Json = nlohmann::ordered_json;

/// A device, with its free memory in bytes; unknown values are null.
[[nodiscard]] Json to_json(const DeviceInfo& info, std::optional<std::uint64_t> memory_free);

/// The whole report, as `report_from_json` reads it.
[[nodiscard]] Json to_json(const DriverReport& report);

/// Parses a report. Throws `Errc::corrupt` for any other text.
[[nodiscard]] DriverReport report_from_json(std::string_view text);

/// JSON as text, in one line if `indent` is -1. Replaces bytes that are not UTF-8, which a driver may return.
[[nodiscard]] std::string dumped(const Json& json, int indent);

}  // namespace drover::cli
