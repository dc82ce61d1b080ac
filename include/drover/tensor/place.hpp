// drover/tensor/place.hpp: where memory lies.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <utility>

#include "drover/device/info.hpp"

namespace drover {

/// Where memory lies, as this process names it: the host's own, or a device's. Between processes devices are named by
/// UUID, since each may number them differently.
struct Place {
  bool is_device = false;                   ///< else it is host memory, and the rest means nothing
  BackendKind backend = BackendKind::host;  ///< whose device
  int index = 0;                            ///< its number in this process

  /// Memory of the host, which every process maps and reads as its own.
  [[nodiscard]] static Place cpu() noexcept { return {}; }
  /// Memory of a device.
  [[nodiscard]] static Place device(BackendKind backend, int index) noexcept {
    return {.is_device = true, .backend = backend, .index = index};
  }
  /// Reads "cpu", "cuda:0" or "host:1"; throws `Errc::invalid_argument` for anything else. Does not look whether
  /// there is such a device.
  [[nodiscard]] static Place parse(std::string_view text);

  /// Same place.
  friend bool operator==(const Place& one, const Place& other) noexcept { return (one <=> other) == 0; }
  /// Some order, for maps.
  friend std::strong_ordering operator<=>(const Place& one, const Place& other) noexcept {
    if (one.is_device != other.is_device)
      return static_cast<int>(one.is_device) <=> static_cast<int>(other.is_device);
    if (!one.is_device) return std::strong_ordering::equal;
    return std::pair(one.backend, one.index) <=> std::pair(other.backend, other.index);
  }
};

/// "cpu", "cuda:0", "host:1".
[[nodiscard]] std::string to_string(const Place& place);

}  // namespace drover
