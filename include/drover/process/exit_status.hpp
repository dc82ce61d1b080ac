// drover/process/exit_status.hpp: how a process ended, as a value that prints itself.
#pragma once

#include <optional>
#include <string>

namespace drover {

/// How a process ended: by itself with a status, or by a signal.
class ExitStatus {
 public:
  /// Ended by returning or calling exit.
  [[nodiscard]] static ExitStatus exited(int status) noexcept { return {status, false, false}; }
  /// Ended by a signal.
  [[nodiscard]] static ExitStatus killed(int signal, bool dumped_core = false) noexcept {
    return {signal, true, dumped_core};
  }

  /// Whether it ended by itself with status 0.
  [[nodiscard]] bool is_success() const noexcept { return !is_signal_ && value_ == 0; }
  /// The exit status; nothing if a signal ended it.
  [[nodiscard]] std::optional<int> status() const noexcept {
    return is_signal_ ? std::nullopt : std::optional(value_);
  }
  /// The signal that ended it; nothing if it ended by itself.
  [[nodiscard]] std::optional<int> signal() const noexcept {
    return is_signal_ ? std::optional(value_) : std::nullopt;
  }
  /// For people: "exited with status 3", "killed by SIGKILL (out of memory?)".
  [[nodiscard]] std::string to_string() const;

  /// Equal in kind and number; whether a core was dumped does not count, since the machine decides that.
  bool operator==(const ExitStatus& other) const noexcept {
    return value_ == other.value_ && is_signal_ == other.is_signal_;
  }

 private:
  ExitStatus(int value, bool is_signal, bool dumped_core) noexcept
      : value_(value), is_signal_(is_signal), dumped_core_(dumped_core) {}

  int value_;
  bool is_signal_;
  bool dumped_core_;
};

}  // namespace drover
