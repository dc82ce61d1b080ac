// Conclusions that several checks draw from the facts, so that one cause is reported once.
#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "observe/checks.hpp"
#include "observe/cuda_answers.hpp"
#include "observe/text_files.hpp"

namespace drover::observe {
namespace {

// NVIDIA_VISIBLE_DEVICES requests GPUs from the container runtime unless it is empty, `void` or `none`.
bool is_gpu_asked_for(const Facts& facts) {
  const auto asked = facts.environment.nvidia_visible_devices.value_or("");
  return !asked.empty() && asked != "void" && asked != "none";
}

}  // namespace

bool is_driver_loaded(const Facts& facts) noexcept {
  const auto& report = facts.probe.report;
  return !report.cuda_library.empty() && report.cuda_library_error.empty();
}

bool is_cuda_working(const Facts& facts) noexcept { return cuda_answered(facts, 0); }

bool cuda_answered(const Facts& facts, int code) noexcept {
  const auto& answer = facts.probe.report.cuda_init;
  return answer && answer->code == code;
}

bool nvml_answered(const Facts& facts, int code) noexcept {
  const auto& answer = facts.probe.report.nvml_init;
  return answer && answer->code == code;
}

std::vector<PciGpu> usable_gpus(const Facts& facts) {
  std::vector<PciGpu> usable;
  std::ranges::copy_if(facts.pci_gpus, std::back_inserter(usable),
                       [](const PciGpu& gpu) { return gpu.driver != "vfio-pci"; });
  return usable;
}

bool has_gpu_node(const Facts& facts) noexcept {
  return std::ranges::any_of(facts.device_nodes, [](const DeviceNode& node) {
    return node.path != "/dev/nvidiactl" && node.path != "/dev/nvidia-uvm";
  });
}

bool is_gpu_expected(const Facts& facts) {
  const auto& answer = facts.probe.report.cuda_init;
  const bool does_cuda_see_one = answer && answer->code != kCudaNoDevice;
  return !usable_gpus(facts).empty() || has_gpu_node(facts) || !facts.kernel_module.empty() || facts.is_wsl ||
         !facts.probe.report.present.empty() || does_cuda_see_one;
}

bool is_blocked_by_container(const Facts& facts) {
  if (!facts.is_container || facts.is_wsl || is_cuda_working(facts)) return false;
  const bool is_there = !usable_gpus(facts).empty() || is_gpu_asked_for(facts);
  return is_there && (!has_gpu_node(facts) || !is_driver_loaded(facts)) && facts.probe.report.present.empty();
}

bool are_all_hidden(const Facts& facts) {
  const auto& setting = facts.environment.cuda_visible_devices;
  if (!setting) return false;
  const auto entries = split(*setting, ',');
  return entries.empty() || trimmed(entries.front()).empty() || trimmed(entries.front()) == "-1";
}

std::vector<std::string> unpartitioned_mig_gpus(const Facts& facts) {
  std::vector<std::string> lacking;
  const auto& present = facts.probe.report.present;
  for (const auto& gpu : present) {
    if (gpu.is_mig_instance || !gpu.mig_enabled.value_or(false)) continue;
    const bool has_instance = std::ranges::any_of(
        present, [&](const DeviceInfo& other) { return other.is_mig_instance && other.pci == gpu.pci; });
    if (!has_instance) lacking.push_back(fmt::format("{} at {}", gpu.name, gpu.pci));
  }
  return lacking;
}

std::string counted(std::size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace drover::observe
