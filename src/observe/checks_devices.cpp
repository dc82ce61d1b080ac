// Checks of the devices and of the settings that hide, order, share or partition them.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "observe/checks.hpp"
#include "observe/cuda_answers.hpp"
#include "observe/text_files.hpp"

namespace drover::observe {
namespace {

bool names_by_number(const std::string& setting) {
  const auto entries = split(setting, ',');
  return std::ranges::any_of(entries, [](std::string_view entry) { return number(entry).has_value(); });
}

bool are_models_mixed(const std::vector<DeviceInfo>& devices) {
  std::set<std::string_view> names;
  for (const auto& device : devices) names.insert(device.name);
  return names.size() > 1;
}

std::string ids_in_mode(const std::vector<DeviceInfo>& devices, ComputeMode mode) {
  std::string ids;
  for (const auto& device : devices) {
    if (device.compute_mode == mode) ids += (ids.empty() ? "" : ", ") + device_id(device);
  }
  return ids;
}

// Why backend `cuda` cannot be used here; empty if it can.
std::string obstacle_to_cuda(const Facts& facts) {
  const auto& report = facts.probe.report;
  if (facts.probe.outcome != ProbeOutcome::answered) return "the driver does not answer";
  if (!is_driver_loaded(facts)) return "libcuda.so.1 cannot be loaded";
  if (!report.missing_symbols.empty()) return "the driver is too old";
  if (report.cuda_init && report.cuda_init->code != 0) {
    return fmt::format("CUDA does not start (cuInit gave {})", report.cuda_init->code);
  }
  return report.visible.empty() ? "no GPU is visible" : "";
}

// Whether the comma-separated `setting` has `entry` more than once.
bool is_given_twice(std::string_view setting, std::string_view entry) {
  const auto whole = fmt::format(",{},", setting);
  const auto wanted = fmt::format(",{},", entry);
  const auto first = whole.find(wanted);
  return first != std::string::npos && whole.find(wanted, first + 1) != std::string::npos;
}

}  // namespace

std::optional<Finding> check_visible_devices(const Facts& facts) {
  constexpr auto kId = "visible-devices";
  const auto& report = facts.probe.report;
  const auto& setting = facts.environment.cuda_visible_devices;
  if (setting && are_all_hidden(facts) && is_gpu_expected(facts)) {
    return warned(kId, fmt::format("CUDA_VISIBLE_DEVICES=\"{}\" hides every GPU", *setting),
                  "unset CUDA_VISIBLE_DEVICES, or name the GPUs to use (`nvidia-smi -L` lists them)");
  }
  if (report.present.empty()) return std::nullopt;
  if (!report.unmatched.empty()) {
    const auto& bad = report.unmatched.front();
    if (is_given_twice(setting.value_or(""), bad)) {
      return failed(kId,
                    fmt::format("CUDA_VISIBLE_DEVICES={} names \"{}\" twice; CUDA then refuses to start",
                                setting.value_or(""), bad),
                    "name each GPU once in CUDA_VISIBLE_DEVICES");
    }
    auto summary = fmt::format(
        "CUDA_VISIBLE_DEVICES={} names \"{}\", which does not exist; CUDA ignores it and "
        "everything after it, so {} visible",
        setting.value_or(""), bad,
        counted(report.visible.size(), "GPU") + (report.visible.size() == 1 ? " is" : " are"));
    const auto remedy = fmt::format("take \"{}\" out of CUDA_VISIBLE_DEVICES; `nvidia-smi -L` lists the GPUs", bad);
    return report.visible.empty() ? failed(kId, std::move(summary), remedy) : warned(kId, std::move(summary), remedy);
  }
  const auto count = fmt::format("{} of {} visible", report.visible.size(), counted(report.present.size(), "GPU"));
  if (!setting) return passed(kId, count);
  return passed(kId, fmt::format("{} by CUDA_VISIBLE_DEVICES={}", count, *setting));
}

std::optional<Finding> check_device_order(const Facts& facts) {
  constexpr auto kId = "device-order";
  const auto& setting = facts.environment.cuda_visible_devices;
  const auto& present = facts.probe.report.present;
  if (!setting || !names_by_number(*setting) || !are_models_mixed(present)) return std::nullopt;
  if (facts.environment.cuda_device_order == "PCI_BUS_ID") {
    return passed(kId, "GPUs are numbered by PCI address, as in nvidia-smi");
  }
  return warned(kId,
                "CUDA_VISIBLE_DEVICES counts GPUs of different models, and CUDA numbers the fastest first, unlike "
                "nvidia-smi",
                "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID (`nvidia-smi -L`)");
}

std::optional<Finding> check_compute_mode(const Facts& facts) {
  constexpr auto kId = "compute-mode";
  const auto& visible = facts.probe.report.visible;
  if (visible.empty()) return std::nullopt;
  if (const auto closed = ids_in_mode(visible, ComputeMode::prohibited); !closed.empty()) {
    return failed(kId, fmt::format("compute mode `prohibited` denies every process access to {}", closed),
                  "allow access with `sudo nvidia-smi -c DEFAULT`");
  }
  if (const auto exclusive = ids_in_mode(visible, ComputeMode::exclusive_process); !exclusive.empty()) {
    if (facts.mps.is_daemon_alive) {
      return noted(kId, fmt::format("{} takes one process at a time, which is the MPS server", exclusive));
    }
    return warned(kId,
                  fmt::format("{} takes one process at a time (compute mode `exclusive-process`); a second "
                              "worker on it fails",
                              exclusive),
                  "share it with `sudo nvidia-smi -c DEFAULT`, start MPS (`nvidia-cuda-mps-control -d`), or run one "
                  "worker per GPU");
  }
  return passed(kId, "every visible GPU may be shared by processes");
}

std::optional<Finding> check_mig(const Facts& facts) {
  constexpr auto kId = "mig";
  if (const auto lacking = unpartitioned_mig_gpus(facts); !lacking.empty()) {
    return failed(
        kId, fmt::format("MIG is enabled on {}, but no instance exists, so CUDA cannot use it", lacking[0]),
        "create instances (`sudo nvidia-smi mig -cgi <profile> -C`; `nvidia-smi mig -lgip` lists profiles), or "
        "switch MIG off with `sudo nvidia-smi -mig 0`");
  }
  const auto instances = static_cast<std::size_t>(
      std::ranges::count_if(facts.probe.report.present, [](const DeviceInfo& gpu) { return gpu.is_mig_instance; }));
  if (instances == 0) return std::nullopt;
  return noted(
      kId,
      fmt::format("{}: a process uses one at a time, and GPU memory cannot be shared between them",
                  counted(instances, "MIG instance")),
      "keep workers that exchange GPU tensors on one instance, or switch MIG off with `sudo nvidia-smi -mig 0`");
}

std::optional<Finding> check_mps(const Facts& facts) {
  constexpr auto kId = "mps";
  const auto& mps = facts.mps;
  const auto& answer = facts.probe.report.cuda_init;
  const bool is_asked_for = !facts.environment.mps_pipe_directory.value_or("").empty();
  if (mps.is_daemon_alive) {
    return noted(
        kId,
        fmt::format("MPS serves {}: a fatal fault in one process ends every process on that GPU", mps.pipe_directory),
        "where workers must not harm each other, stop it with `echo quit | nvidia-cuda-mps-control`");
  }
  if (!mps.has_control && !is_asked_for) return std::nullopt;
  const bool is_refused = answer && answer->code >= kCudaMpsFirst && answer->code <= kCudaMpsLast;
  if (mps.has_control && facts.is_container && !is_refused) {
    return noted(kId,
                 fmt::format("{} has files of an MPS daemon that this container cannot see", mps.pipe_directory));
  }
  const auto summary =
      mps.has_control ? fmt::format("{} has left-over files of an MPS daemon that is not running", mps.pipe_directory)
                      : fmt::format("CUDA_MPS_PIPE_DIRECTORY={} has no MPS daemon", mps.pipe_directory);
  const auto remedy =
      fmt::format("start it with `CUDA_MPS_PIPE_DIRECTORY={0} nvidia-cuda-mps-control -d`, or {1} to go without MPS",
                  mps.pipe_directory,
                  is_asked_for ? "unset CUDA_MPS_PIPE_DIRECTORY" : "remove the directory " + mps.pipe_directory);
  return is_refused ? failed(kId, summary, remedy) : warned(kId, summary, remedy);
}

std::optional<Finding> check_backend_setting(const Facts& facts) {
  constexpr auto kId = "backend-setting";
  const auto asked = facts.environment.backend.value_or("");
  if (asked.empty() || asked == "auto") return std::nullopt;
  if (asked == "host") {
    if (facts.probe.report.visible.empty()) return passed(kId, "DROVER_BACKEND=host: emulated devices, as requested");
    return noted(kId, "DROVER_BACKEND=host: emulated devices are used although a GPU is visible",
                 "unset DROVER_BACKEND to use the GPU");
  }
  if (asked != "cuda") {
    return failed(kId, fmt::format("DROVER_BACKEND={} names no backend", asked),
                  "set DROVER_BACKEND to auto, host or cuda, or unset it");
  }
  const auto obstacle = obstacle_to_cuda(facts);
  if (obstacle.empty()) return passed(kId, "DROVER_BACKEND=cuda: the GPU is used, as requested");
  return failed(kId, fmt::format("DROVER_BACKEND=cuda is not possible: {}", obstacle),
                "unset DROVER_BACKEND to run on emulated devices, or follow the findings about the driver");
}

}  // namespace drover::observe
