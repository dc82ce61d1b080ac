// drover/device/uuid.hpp: the name of a device that means the same in every process.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace drover {

/// Sixteen bytes that name a device on every wire; indices do not travel, because each process may see
/// another subset of the devices.
struct Uuid {
  std::array<std::uint8_t, 16> bytes{};  ///< in the order in which they are written

  /// Equal, or in the order of the bytes.
  auto operator<=>(const Uuid&) const = default;
};

/// As NVIDIA's tools write it: "GPU-" and 8-4-4-4-12 hexadecimal digits.
[[nodiscard]] std::string to_string(const Uuid& uuid);

/// Reads the form above, with or without the prefix "GPU-" or "MIG-"; nothing if it is anything else.
[[nodiscard]] std::optional<Uuid> parse_uuid(std::string_view text);

}  // namespace drover
