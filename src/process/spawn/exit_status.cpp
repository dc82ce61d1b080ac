#include "drover/process/exit_status.hpp"

#include <csignal>
#include <cstring>

#include <fmt/format.h>

namespace drover {
namespace {

std::string signal_name(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

const char* text_of(KillReason reason) {
  switch (reason) {
    case KillReason::out_of_memory: return " (out of memory: the kernel counted such a kill meanwhile)";
    case KillReason::somebody: return " (sent by somebody; the kernel counted no kill for lack of memory)";
    case KillReason::parent: return " (as its parent asked)";
    case KillReason::unknown: break;
  }
  return " (out of memory?)";
}

const char* usual_cause(int signal, KillReason reason) {
  switch (signal) {
    case SIGKILL: return text_of(reason);
    case SIGSEGV: return " (invalid memory access)";
    case SIGBUS: return " (shared memory or disk full?)";
    case SIGABRT: return " (abort, see its output)";
    default: return "";
  }
}

}  // namespace

std::string ExitStatus::to_string() const {
  if (!is_known_) return "ended in a way that nobody knows: the template that had started it was killed before";
  if (!is_signal_) return fmt::format("exited with status {}", value_);
  return fmt::format("killed by {}{}{}", signal_name(value_), usual_cause(value_, reason_),
                     dumped_core_ ? ", core dumped" : "");
}

}  // namespace drover
