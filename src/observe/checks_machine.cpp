// Checks of the hardware and of the access to it: bus, container, kernel module, device nodes.
#include <algorithm>

#include <fmt/format.h>

#include "observe/checks.hpp"

namespace drover::observe {
namespace {

constexpr const char* kInstallDriver =
    "install NVIDIA's driver (Debian and Ubuntu: `sudo apt install nvidia-driver` or `sudo ubuntu-drivers install`; "
    "others: https://www.nvidia.com/drivers), then reboot";

std::string addresses(const std::vector<PciGpu>& gpus) {
  std::string text;
  for (const auto& gpu : gpus) text += (text.empty() ? "" : ", ") + gpu.address;
  return text;
}

std::vector<PciGpu> bound_to(const std::vector<PciGpu>& gpus, const std::string& driver) {
  std::vector<PciGpu> bound;
  for (const auto& gpu : gpus) {
    if (gpu.driver == driver) bound.push_back(gpu);
  }
  return bound;
}

std::string inaccessible_nodes(const Facts& facts) {
  std::string text;
  for (const auto& node : facts.device_nodes) {
    if (!node.is_accessible) text += (text.empty() ? "" : ", ") + node.path;
  }
  return text;
}

bool has_node(const Facts& facts, const char* path) {
  return std::ranges::any_of(facts.device_nodes, [&](const DeviceNode& node) { return node.path == path; });
}

}  // namespace

std::optional<Finding> check_gpu(const Facts& facts) {
  constexpr auto kId = "gpu";
  if (facts.is_wsl) {
    return noted(kId,
                 "the GPU is reached through Windows (WSL), where CUDA cannot share GPU memory between processes",
                 "for zero-copy between processes, run on native Linux");
  }
  const auto usable = usable_gpus(facts);
  if (!usable.empty()) {
    return passed(kId,
                  fmt::format("{} on the PCI bus ({})", counted(usable.size(), "NVIDIA GPU"), addresses(usable)));
  }
  if (!facts.probe.report.present.empty()) {
    return passed(kId,
                  fmt::format("{} known to the driver", counted(facts.probe.report.present.size(), "NVIDIA GPU")));
  }
  if (!facts.pci_gpus.empty()) {
    return noted(kId,
                 fmt::format("every NVIDIA GPU ({}) is reserved for virtual machines by vfio-pci; emulated devices "
                             "are used",
                             addresses(facts.pci_gpus)),
                 "to use one here, unbind it from vfio-pci and bind it to nvidia");
  }
  if (is_gpu_expected(facts) || facts.probe.outcome != ProbeOutcome::answered) return std::nullopt;
  return noted(kId, "this machine has no NVIDIA GPU; emulated devices are used");
}

std::optional<Finding> check_container_access(const Facts& facts) {
  constexpr auto kId = "container-gpu";
  if (!is_blocked_by_container(facts)) return std::nullopt;
  const auto asked = facts.environment.nvidia_visible_devices.value_or("");
  const char* const lacking = has_gpu_node(facts) ? "the driver library libcuda.so.1" : "device nodes (/dev/nvidia0)";
  const char* const remedy =
      "start the container with `docker run --gpus all` (Podman: `--device nvidia.com/gpu=all`; Kubernetes: a limit "
      "`nvidia.com/gpu`); the host needs the package nvidia-container-toolkit";
  if (asked == "void" || asked == "none") {
    return noted(kId, fmt::format("NVIDIA_VISIBLE_DEVICES={} keeps the host's GPUs out of this container", asked),
                 "to use them, set NVIDIA_VISIBLE_DEVICES=all and start the container with `docker run --gpus all`");
  }
  if (usable_gpus(facts).empty()) {
    return warned(
        kId, fmt::format("NVIDIA_VISIBLE_DEVICES={} asks for GPUs, but this container has no {}", asked, lacking),
        remedy);
  }
  return failed(kId, fmt::format("the host has a GPU, but this container has no {}", lacking), remedy);
}

std::optional<Finding> check_kernel_module(const Facts& facts) {
  constexpr auto kId = "kernel-module";
  const auto gpus = usable_gpus(facts);
  if (facts.is_wsl || is_blocked_by_container(facts)) return std::nullopt;
  if (facts.kernel_module.empty()) {
    if (gpus.empty() || is_cuda_working(facts)) return std::nullopt;
    if (const auto taken = bound_to(gpus, "nouveau"); !taken.empty()) {
      return failed(kId, fmt::format("{} is driven by nouveau, which cannot run CUDA", addresses(taken)),
                    std::string(kInstallDriver) + "; it keeps nouveau from loading");
    }
    return failed(
        kId, "a GPU is on the PCI bus, but the kernel module nvidia is not loaded",
        std::string(kInstallDriver) +
            "; if it is installed, `sudo modprobe nvidia` says what prevents it (after a kernel update: `sudo "
            "dkms autoinstall`; with Secure Boot: enrol the module's key)");
  }
  if (const auto unbound = bound_to(gpus, ""); !unbound.empty()) {
    return warned(
        kId, fmt::format("kernel module nvidia {} does not drive {}", facts.kernel_module, addresses(unbound)),
        "`sudo dmesg | grep NVRM` says why; an unsupported GPU needs another driver, and one that fell off the "
        "bus a reboot");
  }
  return passed(kId, fmt::format("kernel module nvidia {} is loaded", facts.kernel_module));
}

std::optional<Finding> check_device_nodes(const Facts& facts) {
  constexpr auto kId = "device-nodes";
  if (facts.is_wsl || facts.kernel_module.empty() || is_blocked_by_container(facts)) return std::nullopt;
  const bool is_working = is_cuda_working(facts);
  if (const auto closed = inaccessible_nodes(facts); !closed.empty()) {
    const auto summary = fmt::format("this user may not read and write {}", closed);
    const char* const remedy =
        "see `ls -l /dev/nvidia*` and join the group that owns them (often `sudo usermod -aG video $USER`, then log "
        "in "
        "again); in a batch system ask for a GPU";
    return is_working ? warned(kId, summary, remedy) : failed(kId, summary, remedy);
  }
  if (is_working) return passed(kId, "this user may use the device nodes");
  if (!has_gpu_node(facts)) {
    return failed(kId, "the kernel module is loaded, but /dev/nvidia0 is missing",
                  "create the nodes with `sudo nvidia-modprobe -c 0 -u`, or run `sudo nvidia-smi` once");
  }
  if (!has_node(facts, "/dev/nvidia-uvm")) {
    return failed(kId, "/dev/nvidia-uvm is missing, without which CUDA does not start",
                  "load the module with `sudo nvidia-modprobe -u -c 0`; in a container pass the node in as well");
  }
  return passed(kId, "this user may use the device nodes");
}

}  // namespace drover::observe
