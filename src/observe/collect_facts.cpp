#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/config.hpp"
#include "base/sys.hpp"
#include "drover/base/bytes.hpp"
#include "drover/observe/doctor.hpp"
#include "observe/memory_limits.hpp"
#include "observe/text_files.hpp"

namespace drover {
namespace {

namespace fs = std::filesystem;
using observe::read_text;

constexpr std::string_view kNvidiaVendor = "0x10de";
constexpr std::string_view kDisplayClass = "0x03";

bool is_there(const fs::path& path) {
  std::error_code failed;
  return fs::exists(path, failed);
}

// The first word of digits and dots: "... Kernel Module  580.159.04  Release Build ...".
std::string kernel_module_version(const fs::path& root) {
  const auto text = read_text(root / "proc/driver/nvidia/version");
  for (const auto word : observe::words(text)) {
    const bool is_version =
        word.find_first_not_of("0123456789.") == std::string_view::npos && word.find('.') != std::string_view::npos;
    if (is_version) return std::string(word);
  }
  return {};
}

std::vector<PciGpu> find_pci_gpus(const fs::path& root) {
  std::vector<PciGpu> gpus;
  const auto bus = root / "sys/bus/pci/devices";
  for (const auto& address : observe::names_in(bus)) {
    const auto folder = bus / address;
    if (observe::trimmed(read_text(folder / "vendor")) != kNvidiaVendor) continue;
    if (!observe::trimmed(read_text(folder / "class")).starts_with(kDisplayClass)) continue;
    std::error_code unbound;
    gpus.push_back({.address = address, .driver = fs::read_symlink(folder / "driver", unbound).filename().string()});
  }
  return gpus;
}

bool is_gpu_node(std::string_view name) {
  if (name == "nvidiactl" || name == "nvidia-uvm") return true;
  constexpr std::string_view kPrefix = "nvidia";
  return name.starts_with(kPrefix) && observe::number(name.substr(kPrefix.size())).has_value();
}

std::vector<DeviceNode> find_device_nodes(const fs::path& root) {
  std::vector<DeviceNode> nodes;
  for (const auto& name : observe::names_in(root / "dev")) {
    if (!is_gpu_node(name)) continue;
    const auto path = root / "dev" / name;
    const bool is_accessible = sys::call("access", ::access, path.c_str(), R_OK | W_OK) == 0;
    nodes.push_back({.path = "/dev/" + name, .is_accessible = is_accessible});
  }
  return nodes;
}

bool in_container(const fs::path& root) {
  if (is_there(root / ".dockerenv") || is_there(root / "run/.containerenv")) return true;
  constexpr std::array kHints = {"docker", "kubepods", "containerd", "libpod", "lxc"};
  const auto cgroups = read_text(root / "proc/1/cgroup");
  return std::ranges::any_of(kHints, [&](const char* hint) { return cgroups.find(hint) != std::string::npos; });
}

std::optional<std::string> variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

DeviceEnvironment read_environment() {
  return {.cuda_visible_devices = variable("CUDA_VISIBLE_DEVICES"),
          .cuda_device_order = variable("CUDA_DEVICE_ORDER"),
          .nvidia_visible_devices = variable("NVIDIA_VISIBLE_DEVICES"),
          .nvidia_driver_capabilities = variable("NVIDIA_DRIVER_CAPABILITIES"),
          .mps_pipe_directory = environment_path("CUDA_MPS_PIPE_DIRECTORY"),
          .backend = variable("DROVER_BACKEND")};
}

// Compares the name in the command line: the kernel truncates the short name to 15 characters, in which daemon and
// server look alike.
bool is_mps_daemon(const fs::path& process) {
  const auto command = read_text(process / "cmdline");
  return fs::path(command.c_str()).filename() == "nvidia-cuda-mps-control";
}

MpsFacts find_mps(const fs::path& root, const std::optional<std::string>& asked) {
  const std::string directory = asked && !asked->empty() ? *asked : "/tmp/nvidia-mps";
  const auto folder = root / fs::path(directory).relative_path();
  MpsFacts mps{.pipe_directory = directory, .has_control = is_there(folder / "control")};
  const auto written = observe::number(read_text(folder / "nvidia-cuda-mps-control.pid"));
  if (written) {
    mps.is_daemon_alive = is_mps_daemon(root / "proc" / std::to_string(*written));
  } else if (mps.has_control) {
    const auto processes = observe::names_in(root / "proc");
    mps.is_daemon_alive = std::ranges::any_of(processes, [&](const std::string& name) {
      return observe::number(name).has_value() && is_mps_daemon(root / "proc" / name);
    });
  }
  return mps;
}

std::optional<SpaceFacts> shared_memory_space(const fs::path& root) {
  struct statvfs space{};
  const auto path = root / "dev/shm";
  if (sys::retry("statvfs", ::statvfs, path.c_str(), &space) != 0) return std::nullopt;
  return SpaceFacts{.total = std::uint64_t{space.f_blocks} * space.f_frsize,
                    .free = std::uint64_t{space.f_bavail} * space.f_frsize};
}

OpenFileFacts open_file_facts(const fs::path& root) {
  OpenFileFacts facts{.in_use = observe::names_in(root / "proc/self/fd").size()};
  rlimit limit{};
  const auto get_limit = [](rlimit* into) { return ::getrlimit(RLIMIT_NOFILE, into); };
  if (sys::call("getrlimit", get_limit, &limit) == 0) {
    facts.soft_limit = limit.rlim_cur;
    facts.hard_limit = limit.rlim_max;
  }
  return facts;
}

std::optional<int> overcommit(const fs::path& root) {
  const auto mode = observe::number(read_text(root / "proc/sys/vm/overcommit_memory"));
  return mode ? std::optional(static_cast<int>(*mode)) : std::nullopt;
}

}  // namespace

Facts collect_facts(DriverProbe probe, const std::string& root) {
  Facts facts;
  facts.probe = std::move(probe);
  facts.kernel_module = kernel_module_version(root);
  facts.pci_gpus = find_pci_gpus(root);
  facts.device_nodes = find_device_nodes(root);
  facts.is_wsl = is_there(fs::path(root) / "dev/dxg");
  facts.is_container = in_container(root);
  facts.environment = read_environment();
  facts.mps = find_mps(root, facts.environment.mps_pipe_directory);
  facts.shared_memory = shared_memory_space(root);
  facts.open_files = open_file_facts(root);
  facts.memory_total =
      observe::number_after(read_text(fs::path(root) / "proc/meminfo"), "MemTotal:").value_or(0) * kKiB;
  facts.memory_limits = observe::memory_limits(root);
  facts.overcommit_memory = overcommit(root);
  return facts;
}

}  // namespace drover
