#include "base/sys.hpp"

#include <atomic>

namespace drover::sys {
namespace {

std::atomic<Fault> installed{nullptr};

}  // namespace

void set_fault(Fault fault) noexcept { installed.store(fault, std::memory_order_release); }

int injected(const char* call) noexcept {
  if (installed.load(std::memory_order_relaxed) == nullptr) return 0;
  const Fault fault = installed.load(std::memory_order_acquire);
  return fault == nullptr ? 0 : fault(call);
}

}  // namespace drover::sys
