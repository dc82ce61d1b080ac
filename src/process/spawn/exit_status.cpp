#include "drover/process/child_process.hpp"

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
    case KillReason::out_of_memory: return " (out of memory: the kernel counted an OOM kill meanwhile)";
    case KillReason::somebody: return " (sent by another process; the kernel counted no OOM kill)";
    case KillReason::parent: return " (requested by its parent)";
    case KillReason::unknown: break;
  }
  return " (sent by another process, or the kernel was out of memory: see dmesg)";
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
  if (!is_known_) return "ended with an unknown status: the template that started it was killed first";
  if (!is_signal_) return fmt::format("exited with status {}", value_);
  return fmt::format("killed by {}{}{}", signal_name(value_), usual_cause(value_, reason_),
                     dumped_core_ ? ", core dumped" : "");
}

}  // namespace drover
