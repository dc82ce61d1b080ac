#include "drover/device/info.hpp"

#include <cstdlib>

#include "device/cuda/driver.hpp"
#include "device/cuda/error.hpp"
#include "device/cuda/nvml.hpp"
#include "device/cuda/visible_devices.hpp"

namespace drover {
namespace {

void list_devices(DriverReport& report) {
  for (const auto& gpu : device::cuda::nvml().gpus()) {
    report.present.push_back(gpu.info);
    report.present.back().index = static_cast<int>(report.present.size()) - 1;
  }
  const char* const text = std::getenv("CUDA_VISIBLE_DEVICES");
  const auto setting = text == nullptr ? std::nullopt : std::optional<std::string>(text);
  auto visible = device::cuda::apply_visible_devices(setting, report.present);
  for (const auto place : visible.order) {
    report.visible.push_back(report.present[place]);
    report.visible.back().index = static_cast<int>(report.visible.size()) - 1;
  }
  report.unmatched = std::move(visible.unmatched);
}

}  // namespace

DriverReport inspect_driver(bool initialize) {
  DriverReport report;
  const device::cuda::Driver& driver = device::cuda::driver();
  report.cuda_library = driver.path;
  report.cuda_library_error = driver.error;
  report.cuda_version = driver.version;
  report.missing_symbols = driver.missing;
  if (initialize && driver.cuInit.is_present()) {
    const device::cuda::CUresult result = driver.cuInit(0);
    report.cuda_init =
        ForeignResult{result, result == device::cuda::kSuccess ? "success" : device::cuda::describe(result)};
  }
  const device::cuda::Nvml& nvml = device::cuda::nvml();
  report.nvml_library_error = nvml.error;
  report.nvml_init = nvml.init;
  report.driver_version = nvml.driver_version();
  if (nvml.is_usable()) list_devices(report);
  return report;
}

}  // namespace drover
