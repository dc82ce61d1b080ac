#include "pool/run/relocation_rule.hpp"

#include <algorithm>

namespace drover::pool {

bool is_worth_relocating(const RelocationFacts& facts) noexcept {
  constexpr double kNanosecondsPerByte = 1e9 / kRelocationBytesPerSecond;
  const auto workers = static_cast<double>(std::max<std::size_t>(facts.workers, 1));
  const double waiting = static_cast<double>(facts.ahead) * facts.mean_run / workers;
  const double moving = (static_cast<double>(facts.bytes) * kNanosecondsPerByte) + kRelocationNanoseconds;
  return moving < waiting;
}

// A process that sees a MIG instance sees no other device.
bool sees_other_devices(const WorkerPlan& plan, const WorkerPlanOptions& options) noexcept {
  if (!plan.device) return false;
  const DeviceInfo& info = plan.device->info;
  return info.backend == BackendKind::host || (options.sees_all && !info.is_mig_instance);
}

}  // namespace drover::pool
