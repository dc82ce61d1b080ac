// drover/process/exit_status.hpp: how a process ended, as a value that prints itself.
#pragma once

#include <optional>
#include <string>

namespace drover {

/// What is known about why a process was killed by SIGKILL.
enum class KillReason {
  unknown,        ///< nothing
  out_of_memory,  ///< the kernel's count of processes it killed for lack of memory rose while this one ran
  somebody,       ///< that count did not rise: somebody sent the signal
  parent,         ///< its parent asked for it
};

/// How a process ended: by itself with a status, or by a signal; or that nobody can tell.
class ExitStatus {
 public:
  /// Ended by returning or calling exit.
  [[nodiscard]] static ExitStatus exited(int status) noexcept { return {status, false, false}; }
  /// Ended by a signal.
  [[nodiscard]] static ExitStatus killed(int signal, bool dumped_core = false,
                                         KillReason reason = KillReason::unknown) noexcept {
    ExitStatus status(signal, true, dumped_core);
    status.reason_ = reason;
    return status;
  }

  /// Ended, but who started it, a template, died first, and with it the knowledge how.
  [[nodiscard]] static ExitStatus unknown() noexcept {
    ExitStatus status(0, false, false);
    status.is_known_ = false;
    return status;
  }

  /// Whether it ended by itself with status 0.
  [[nodiscard]] bool is_success() const noexcept { return is_known_ && !is_signal_ && value_ == 0; }
  /// The exit status; nothing if a signal ended it, or if nobody knows.
  [[nodiscard]] std::optional<int> status() const noexcept {
    return is_signal_ || !is_known_ ? std::nullopt : std::optional(value_);
  }
  /// The signal that ended it; nothing if it ended by itself.
  [[nodiscard]] std::optional<int> signal() const noexcept {
    return is_signal_ ? std::optional(value_) : std::nullopt;
  }
  /// What is known about a SIGKILL; `unknown` for everything else.
  [[nodiscard]] KillReason reason() const noexcept { return reason_; }
  /// For people: "exited with status 3", "killed by SIGKILL (out of memory?)".
  [[nodiscard]] std::string to_string() const;

  /// Equal in kind and number; whether a core was dumped, and why it was killed, do not count, since the machine
  /// decides what is known of that.
  bool operator==(const ExitStatus& other) const noexcept {
    return value_ == other.value_ && is_signal_ == other.is_signal_ && is_known_ == other.is_known_;
  }

 private:
  ExitStatus(int value, bool is_signal, bool dumped_core) noexcept
      : value_(value), is_signal_(is_signal), dumped_core_(dumped_core) {}

  int value_;
  bool is_signal_;
  bool dumped_core_;
  bool is_known_ = true;
  KillReason reason_ = KillReason::unknown;
};

}  // namespace drover
