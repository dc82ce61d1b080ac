// drover/base/error.hpp: the one exception type, and the closed list of its codes.
#pragma once

#include <array>
#include <exception>
#include <source_location>
#include <string>
#include <string_view>

namespace drover {

/// Every failure that drover reports has one of these codes. The list is closed: a new kind of failure gets a new
/// code here and a section in `docs/errors.md`. Programs may switch on the code; the text is for people.
enum class Errc {
  invalid_argument,   ///< the caller passed something that can never work
  out_of_memory,      ///< host memory or address space is exhausted
  device_memory,      ///< the device has too little free memory
  limit_reached,      ///< a system limit (open files, processes, mappings) is exhausted
  permission_denied,  ///< the system refuses this user or this container
  not_found,          ///< no such device, file, name or symbol
  busy,               ///< another process or thread holds the resource
  unsupported,        ///< this backend, driver or machine cannot do it
  driver_missing,     ///< a driver library is missing or cannot be loaded
  driver_mismatch,    ///< versions of driver components, or of driver and request, do not match
  forked,             ///< this process was forked after devices were initialised
  device_lost,        ///< the device fell off the bus or needs a reset
  device_fault,       ///< a kernel did something illegal; the context is unusable from now on
  timed_out,          ///< a deadline passed where an answer was required
  peer_lost,          ///< the process at the other end is gone
  task_failed,        ///< a task threw an exception that cannot be rethrown here, or killed too many workers
  cancelled,          ///< cancelled before completion: by the caller, by Ctrl-C, or because its pool closed
  corrupt,            ///< data from outside is malformed
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

/// Why an operation failed: a code, a message with the facts (call, object, pid, bytes), the remedy, and where drover
/// noticed. Outcomes of normal operation (empty, full, timed out) are return values instead.
class Error : public std::exception {
 public:
  /// `message` says what failed, without a final full stop; `remedy` is an instruction, or empty if there is none.
  Error(Errc code, std::string message, std::string remedy = {},
        std::source_location where = std::source_location::current());

  /// The kind of failure, to switch on.
  [[nodiscard]] Errc code() const noexcept { return code_; }
  /// What failed, with its facts.
  [[nodiscard]] const std::string& message() const noexcept { return message_; }
  /// What to do about it; empty if no remedy is known.
  [[nodiscard]] const std::string& remedy() const noexcept { return remedy_; }
  /// The place in drover that threw.
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }
  /// Message, code, remedy and place, for people: several lines.
  [[nodiscard]] const char* what() const noexcept override { return what_.c_str(); }

 private:
  Errc code_;
  std::string message_;
  std::string remedy_;
  std::source_location where_;
  std::string what_;
};

/// Translates `errno`, and is the only function that does: code and remedy follow from `error_number`; the message
/// names `call` ("mmap"), its object `what` ("slab of 64.0 MiB") and the pid.
[[nodiscard]] Error error_from_errno(int error_number, const char* call, const std::string& what,
                                     std::source_location where = std::source_location::current());

/// Throws `error_from_errno(errno, ...)`.
[[noreturn]] void throw_errno(const char* call, const std::string& what,
                              std::source_location where = std::source_location::current());

/// Throws `Errc::invalid_argument` unless `holds`; for checking a caller's arguments.
void require(bool holds, const char* message, const char* remedy = "",
             std::source_location where = std::source_location::current());

}  // namespace drover
