#include "drover/observe/doctor.hpp"

#include <algorithm>

#include "observe/checks.hpp"

namespace drover {
namespace {

constexpr std::array<observe::Check, 20> kChecks = {
    observe::check_gpu,
    observe::check_container_access,
    observe::check_kernel_module,
    observe::check_device_nodes,
    observe::check_driver_answer,
    observe::check_driver_library,
    observe::check_driver_versions,
    observe::check_driver_symbols,
    observe::check_driver_init,
    observe::check_nvml,
    observe::check_visible_devices,
    observe::check_device_order,
    observe::check_compute_mode,
    observe::check_mig,
    observe::check_mps,
    observe::check_backend_setting,
    observe::check_shared_memory,
    observe::check_open_files,
    observe::check_memory_limit,
    observe::check_overcommit,
};

}  // namespace

std::vector<Finding> diagnose(const Facts& facts) {
  std::vector<Finding> findings;
  for (const auto check : kChecks) {
    if (auto finding = check(facts)) findings.push_back(std::move(*finding));
  }
  return findings;
}

Severity worst(const std::vector<Finding>& findings) noexcept {
  auto highest = Severity::ok;
  for (const auto& finding : findings) highest = std::max(highest, finding.severity);
  return highest;
}

std::string_view to_string(Severity severity) noexcept {
  switch (severity) {
    case Severity::ok: return "ok";
    case Severity::note: return "note";
    case Severity::warning: return "warning";
    case Severity::failure: return "failure";
  }
  return "unknown";
}

}  // namespace drover
