// drover/base/error.hpp: the one exception type.
#pragma once

#include <exception>
#include <source_location>
#include <string>

#include "drover/base/errc.hpp"

namespace drover {

/// What stopped an operation: a code, what failed with its facts (call, object, pid, bytes), where in
/// drover it was noticed, and what the user can do about it. What a caller should expect in normal
/// running (empty, full, timed out) is a return value instead.
class Error : public std::exception {
 public:
  /// `message` says what failed, without a final stop; `remedy` is an instruction, or empty if there is none.
  Error(Errc code, std::string message, std::string remedy = {},
        std::source_location where = std::source_location::current());

  /// The kind of failure, to switch on.
  [[nodiscard]] Errc code() const noexcept { return code_; }
  /// What failed, with its facts.
  [[nodiscard]] const std::string& message() const noexcept { return message_; }
  /// What to do about it; empty if nothing is known to help.
  [[nodiscard]] const std::string& remedy() const noexcept { return remedy_; }
  /// The place in drover that noticed.
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }
  /// Code, message, remedy, and place, for a person: several lines.
  [[nodiscard]] const char* what() const noexcept override { return what_.c_str(); }

 private:
  Errc code_;
  std::string message_;
  std::string remedy_;
  std::source_location where_;
  std::string what_;
};

/// The one translation of `errno`: code and remedy follow from `error_number`, the text names `call`
/// ("mmap"), its subject `what` ("slab of 64.0 MiB") and the pid.
[[nodiscard]] Error error_from_errno(int error_number, const char* call, const std::string& what,
                                     std::source_location where = std::source_location::current());

/// Throws `error_from_errno(errno, ...)`.
[[noreturn]] void throw_errno(const char* call, const std::string& what,
                              std::source_location where = std::source_location::current());

/// Throws `Errc::invalid_argument` unless `holds`; for checks of what a caller passed in.
void require(bool holds, const char* message, const char* remedy = "",
             std::source_location where = std::source_location::current());

}  // namespace drover
