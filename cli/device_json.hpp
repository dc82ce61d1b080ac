// cli/device_json.hpp: devices and the driver's report as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "drover/device/driver_report.hpp"
#include "drover/device/info.hpp"

namespace drover::cli {

/// Keys stay in the order in which they are written.
using Json = nlohmann::ordered_json;

/// What is known of a device, and its free memory in bytes; null where unknown.
[[nodiscard]] Json to_json(const DeviceInfo& info, std::optional<std::uint64_t> memory_free);

/// The whole report, for `report_from_json`.
[[nodiscard]] Json to_json(const DriverReport& report);

/// Reads the report back. Throws `Errc::corrupt` if the text is anything else.
[[nodiscard]] DriverReport report_from_json(std::string_view text);

/// As text; bytes that are no UTF-8, which a driver may hand out, are replaced. An indent of -1 gives one line.
[[nodiscard]] std::string dumped(const Json& json, int indent);

}  // namespace drover::cli
