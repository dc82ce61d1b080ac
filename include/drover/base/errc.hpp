// drover/base/errc.hpp: the closed list of what can go wrong.
#pragma once

#include <array>
#include <string_view>

namespace drover {

/// Every failure drover reports has one of these codes. The list is closed: a new kind of failure is a
/// new code here, with its section in `docs/errors.md`. Programs may switch on it; the text is for people.
enum class Errc {
  invalid_argument,   ///< the caller passed something that can never work
  out_of_memory,      ///< host memory or address space is exhausted
  device_memory,      ///< the device has too little free memory
  limit_reached,      ///< a system limit (open files, processes, mappings) is exhausted
  permission_denied,  ///< the system refuses this user or this container
  not_found,          ///< no such device, file, name or symbol
  busy,               ///< someone else holds what is needed
  unsupported,        ///< this backend, driver or machine cannot do it
  driver_missing,     ///< a driver library is absent or cannot be loaded
  driver_mismatch,    ///< driver parts, or driver and request, have versions that do not fit
  forked,             ///< this process was forked after devices were initialised
  device_lost,        ///< the device fell off the bus or needs a reset
  device_fault,       ///< a kernel did something illegal; the context is unusable from now on
  timed_out,          ///< a deadline passed where an answer was required
  peer_lost,          ///< the process at the other end is gone
  task_failed,        ///< a task threw what cannot be thrown here, or killed too many workers
  cancelled,          ///< it was given up before it was done: by the caller, by Ctrl-C, by its pool's end
  corrupt,            ///< data from outside does not have the form it must have
  system,             ///< a system call failed for a reason with no code of its own
  internal,           ///< a bug in drover; please report it
};

/// All codes, in the order above; for tables and tests.
inline constexpr std::array kAllErrc = {
    Errc::invalid_argument, Errc::out_of_memory, Errc::device_memory, Errc::limit_reached,  Errc::permission_denied,
    Errc::not_found,        Errc::busy,          Errc::unsupported,   Errc::driver_missing, Errc::driver_mismatch,
    Errc::forked,           Errc::device_lost,   Errc::device_fault,  Errc::timed_out,      Errc::peer_lost,
    Errc::task_failed,      Errc::cancelled,     Errc::corrupt,       Errc::system,         Errc::internal,
};

/// The code's name as written above, e.g. "device_memory".
[[nodiscard]] std::string_view to_string(Errc code) noexcept;

}  // namespace drover
