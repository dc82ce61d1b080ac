#include "drover/base/errc.hpp"

namespace drover {

std::string_view to_string(Errc code) noexcept {
  switch (code) {
    case Errc::invalid_argument: return "invalid_argument";
    case Errc::out_of_memory: return "out_of_memory";
    case Errc::device_memory: return "device_memory";
    case Errc::limit_reached: return "limit_reached";
    case Errc::permission_denied: return "permission_denied";
    case Errc::not_found: return "not_found";
    case Errc::busy: return "busy";
    case Errc::unsupported: return "unsupported";
    case Errc::driver_missing: return "driver_missing";
    case Errc::driver_mismatch: return "driver_mismatch";
    case Errc::forked: return "forked";
    case Errc::device_lost: return "device_lost";
    case Errc::device_fault: return "device_fault";
    case Errc::timed_out: return "timed_out";
    case Errc::peer_lost: return "peer_lost";
    case Errc::task_failed: return "task_failed";
    case Errc::cancelled: return "cancelled";
    case Errc::corrupt: return "corrupt";
    case Errc::system: return "system";
    case Errc::internal: return "internal";
  }
  return "unknown";
}

}  // namespace drover
