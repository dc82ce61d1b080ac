// drover/tensor/place.hpp: where memory lies.
#pragma once

#include <string>
#include <string_view>

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
  friend bool operator==(const Place&, const Place&) = default;
  /// Some order, for maps.
  friend auto operator<=>(const Place&, const Place&) = default;
};

/// "cpu", "cuda:0", "host:1".
[[nodiscard]] std::string to_string(const Place& place);

}  // namespace drover
