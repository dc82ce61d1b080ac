// drover/device/select.hpp: which backend this process uses, and why.
#pragma once

#include <string>
#include <vector>

#include "drover/device/backend.hpp"

namespace drover {

/// A backend that was chosen and the reason, for people.
struct Selection {
  Backend& backend;    ///< lives until the process ends
  std::string reason;  ///< e.g. "one GPU is visible", "emulated: libcuda.so.1 is not installed"
};

/// The backend of this process. DROVER_BACKEND=host or cuda decides; unset or `auto` takes `cuda` where a GPU is
/// visible and the driver loads, else `host`. Decided once, at the first call; initialises no device. Throws
/// when DROVER_BACKEND asks for what is not there, saying what is missing.
[[nodiscard]] const Selection& select_backend();

/// The backend of a kind, whatever was selected. Throws `Errc::driver_missing`, `Errc::driver_mismatch` or
/// `Errc::not_found` for `cuda` where it cannot work.
[[nodiscard]] Backend& backend_of(BackendKind kind);

/// Every backend that has a device here: `host` always, `cuda` where a GPU is visible.
[[nodiscard]] std::vector<Backend*> available_backends();

/// The device of `backend` with this UUID. Throws `Errc::not_found`, naming what is there.
[[nodiscard]] int device_with_uuid(const Backend& backend, const Uuid& uuid);

}  // namespace drover
