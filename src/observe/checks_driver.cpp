// Checks of the driver's libraries: whether they respond, load, match each other and start.
#include <algorithm>

#include <fmt/format.h>

#include "observe/checks.hpp"
#include "observe/cuda_answers.hpp"

namespace drover::observe {
namespace {

constexpr int kNvmlMismatch = 18;

const char* missing_library_remedy(const Facts& facts) {
  if (facts.is_container) {
    return "start the container with `docker run --gpus all` and NVIDIA_DRIVER_CAPABILITIES=compute,utility, which "
           "adds the host's driver libraries";
  }
  if (!facts.kernel_module.empty()) {
    return "install the driver's libraries that match the kernel module (Debian: libcuda1; Ubuntu: "
           "libnvidia-compute-<version>), or set DROVER_LIBCUDA to the path of libcuda.so.1";
  }
  return "install NVIDIA's driver, which provides libcuda.so.1, or set DROVER_LIBCUDA to its path";
}

std::string versions_text(const std::string& module, const std::string& libraries) {
  if (module.empty()) return "the kernel module and the libraries differ";
  if (libraries.empty()) return fmt::format("the kernel module is {}, the libraries are of another version", module);
  return fmt::format("the kernel module is {}, the libraries are {}", module, libraries);
}

std::string cuda_version_text(int version) {
  return version == 0 ? "" : fmt::format(" and supports CUDA {}.{}", version / 1000, version % 1000 / 10);
}

// Whether a missing GPU (CUDA_ERROR_NO_DEVICE) is explained by another finding.
bool is_absence_explained(const Facts& facts) {
  const bool lacks_module = facts.kernel_module.empty() && !usable_gpus(facts).empty();
  return are_all_hidden(facts) || !facts.probe.report.unmatched.empty() || lacks_module ||
         is_blocked_by_container(facts) || !unpartitioned_mig_gpus(facts).empty();
}

std::string listed(const std::vector<std::string>& names, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

}  // namespace

std::optional<Finding> check_driver_answer(const Facts& facts) {
  constexpr auto kId = "driver-answer";
  switch (facts.probe.outcome) {
    case ProbeOutcome::answered: return std::nullopt;
    case ProbeOutcome::timed_out:
      return failed(
          kId, fmt::format("the driver did not answer {}", facts.probe.detail),
          "look for Xid errors with `sudo dmesg | grep -i xid`, end programs that hang on the GPU, reset it "
          "with `sudo nvidia-smi --gpu-reset`, and reboot if that does not help");
    case ProbeOutcome::died:
      return failed(kId, fmt::format("the process that queried the driver died: {}", facts.probe.detail),
                    "reinstall NVIDIA's driver so that all parts have the same version, and check that "
                    "LD_LIBRARY_PATH and DROVER_LIBCUDA do "
                    "not name another libcuda.so.1");
  }
  return std::nullopt;
}

std::optional<Finding> check_driver_library(const Facts& facts) {
  constexpr auto kId = "driver-library";
  const auto& report = facts.probe.report;
  if (report.cuda_library.empty() || is_blocked_by_container(facts)) return std::nullopt;
  if (is_driver_loaded(facts)) {
    return passed(kId, fmt::format("{} is loaded{}", report.cuda_library, cuda_version_text(report.cuda_version)));
  }
  const auto summary = fmt::format("the driver library cannot be loaded: {}", report.cuda_library_error);
  if (!is_gpu_expected(facts)) return noted(kId, summary);
  return failed(kId, summary, missing_library_remedy(facts));
}

std::optional<Finding> check_driver_versions(const Facts& facts) {
  constexpr auto kId = "driver-versions";
  const auto& libraries = facts.probe.report.driver_version;
  const auto& module = facts.kernel_module;
  if (cuda_answered(facts, kCudaCompatUnsupported)) {
    return failed(
        kId, "a forward-compatibility libcuda is loaded, which this GPU or kernel module does not support",
        "take CUDA's compat directory out of LD_LIBRARY_PATH (in a container: use an image whose CUDA is not "
        "newer than the host's driver), or update the host's driver");
  }
  const bool are_known = !module.empty() && !libraries.empty();
  if (cuda_answered(facts, kCudaDriverMismatch) && are_known && module == libraries) {
    return failed(
        kId, fmt::format("the loaded libcuda does not match the driver, which is {}", module),
        "find which libcuda.so.1 comes first (LD_LIBRARY_PATH, DROVER_LIBCUDA, `ldconfig -p | grep libcuda`) "
        "and take CUDA's compat directory, or a copy from another driver, out of the way");
  }
  if ((are_known && module != libraries) || cuda_answered(facts, kCudaDriverMismatch) ||
      nvml_answered(facts, kNvmlMismatch)) {
    return failed(kId, fmt::format("driver/library version mismatch: {}", versions_text(module, libraries)),
                  "reboot, or `sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`: the "
                  "driver was updated while the old module was loaded; in a container recreate it");
  }
  if (!are_known) return std::nullopt;
  return passed(kId, fmt::format("kernel module and libraries are both {}", module));
}

std::optional<Finding> check_driver_symbols(const Facts& facts) {
  constexpr auto kId = "driver-symbols";
  if (!is_driver_loaded(facts)) return std::nullopt;
  const auto& missing = facts.probe.report.missing_symbols;
  if (missing.empty()) return passed(kId, "the driver has every entry point drover needs");
  // The toolkit's stub fails every lookup of an entry point.
  if (std::ranges::find(missing, "cuInit") != missing.end()) {
    return failed(kId,
                  fmt::format("{} is not a driver: it lacks even cuInit, like the toolkit's stub for linking",
                              facts.probe.report.cuda_library),
                  "take the toolkit's directory lib64/stubs out of LD_LIBRARY_PATH and DROVER_LIBCUDA");
  }
  return failed(kId, fmt::format("the driver is too old: it lacks {}", listed(missing, 5)),
                "install NVIDIA's driver 525 (CUDA 12.0) or newer");
}

std::optional<Finding> check_driver_init(const Facts& facts) {
  constexpr auto kId = "driver-init";
  const auto& answer = facts.probe.report.cuda_init;
  if (!answer) return std::nullopt;
  if (answer->code == 0) return passed(kId, "CUDA initialises (cuInit)");
  const bool is_mismatch = answer->code == kCudaDriverMismatch || answer->code == kCudaCompatUnsupported;
  if (is_mismatch) return std::nullopt;
  if (answer->code == kCudaNoDevice) {
    if (is_absence_explained(facts)) return std::nullopt;
    if (!is_gpu_expected(facts)) return noted(kId, fmt::format("CUDA finds no GPU ({})", answer->text));
  }
  const auto [meaning, remedy] = explain_cuda_answer(answer->code);
  return failed(kId, fmt::format("CUDA fails to initialise: {} (cuInit: {})", meaning, answer->text), remedy);
}

std::optional<Finding> check_nvml(const Facts& facts) {
  constexpr auto kId = "nvml";
  const auto& report = facts.probe.report;
  if (!is_driver_loaded(facts) || is_blocked_by_container(facts)) return std::nullopt;
  const bool is_expected = is_gpu_expected(facts);
  if (!report.nvml_library_error.empty()) {
    const auto summary =
        fmt::format("NVML, which drover uses to list GPUs, cannot be loaded: {}", report.nvml_library_error);
    if (!is_expected) return noted(kId, summary);
    return failed(kId, summary,
                  facts.is_container
                      ? "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility; `utility` adds NVML"
                      : "install libnvidia-ml.so.1 in the driver's version (Debian: libnvidia-ml1; Ubuntu: part of "
                        "libnvidia-compute-<version>), or set DROVER_LIBNVML to its path");
  }
  if (!report.nvml_init || report.nvml_init->code == kNvmlMismatch) return std::nullopt;
  if (report.nvml_init->code == 0) {
    return passed(kId, fmt::format("NVML shows {}", counted(report.present.size(), "GPU")));
  }
  const auto summary =
      fmt::format("NVML does not start (code {}: {})", report.nvml_init->code, report.nvml_init->text);
  if (!is_expected) return noted(kId, summary);
  const bool is_module_missing = facts.kernel_module.empty() && !usable_gpus(facts).empty();
  if (is_module_missing) return std::nullopt;
  return failed(kId, summary,
                "run `nvidia-smi`: if it fails too, repair the driver (`sudo dmesg | grep NVRM` shows "
                "its complaints) or reboot");
}

}  // namespace drover::observe
