// drover/process/exit_status.hpp: how a process ended.
#pragma once

#include <optional>
#include <string>

namespace drover {

/// The known reason of a SIGKILL.
enum class KillReason {
  unknown,        ///< not known
  out_of_memory,  ///< the kernel's count of OOM kills rose while it ran
  somebody,       ///< that count did not rise: another process sent the signal
  parent,         ///< its parent sent it
};

/// How a process ended: with a status, by a signal, or unknown.
class ExitStatus {
 public:
  /// Returned from main or called exit.
  [[nodiscard]] static ExitStatus exited(int status) noexcept { return {status, false, false}; }
  /// Was ended by a signal.
  [[nodiscard]] static ExitStatus killed(int signal, bool dumped_core = false,
                                         KillReason reason = KillReason::unknown) noexcept {
    ExitStatus status(signal, true, dumped_core);
    status.reason_ = reason;
    return status;
  }

  /// Ended in an unknown way, since the template that started it died first.
  [[nodiscard]] static ExitStatus unknown() noexcept {
    ExitStatus status(0, false, false);
    status.is_known_ = false;
    return status;
  }

  /// Whether it exited with status 0.
  [[nodiscard]] bool is_success() const noexcept { return is_known_ && !is_signal_ && value_ == 0; }
  /// The exit status; nullopt if a signal ended it or it is unknown.
  [[nodiscard]] std::optional<int> status() const noexcept {
    return is_signal_ || !is_known_ ? std::nullopt : std::optional(value_);
  }
  /// The signal that ended it; nullopt if it exited.
  [[nodiscard]] std::optional<int> signal() const noexcept {
    return is_signal_ ? std::optional(value_) : std::nullopt;
  }
  /// The known reason of a SIGKILL; `unknown` for any other end.
  [[nodiscard]] KillReason reason() const noexcept { return reason_; }
  /// A text such as "exited with status 3", "killed by SIGKILL (out of memory?)".
  [[nodiscard]] std::string to_string() const;

  /// Compares kind and number. Ignores core dumps and kill reasons, which depend on the machine.
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
