// drover/observe/facts.hpp: what the doctor reads from the machine before it judges.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "drover/device/driver_report.hpp"

namespace drover {

/// How asking the driver ended; it is asked in a process of its own, because it may hang or crash there.
enum class ProbeOutcome {
  answered,   ///< the report is complete
  timed_out,  ///< no answer within the deadline; the report holds what was learnt without initialising
  died,       ///< the asking process ended without a report
};

/// The driver's answer, or why there is none.
struct DriverProbe {
  ProbeOutcome outcome = ProbeOutcome::answered;  ///< whether `report` can be trusted whole
  std::string detail;                             ///< for people: "within 30 s", "killed by SIGSEGV"
  DriverReport report;                            ///< what was learnt
};

/// An NVIDIA display or compute function on the PCI bus.
struct PciGpu {
  std::string address;  ///< "0000:1b:00.0"
  std::string driver;   ///< "nvidia", "nouveau", "vfio-pci"; empty when none is bound
};

/// A file such as /dev/nvidia0.
struct DeviceNode {
  std::string path;            ///< without the root prefix
  bool is_accessible = false;  ///< whether this user may read and write it
};

/// Environment variables that decide what a process sees; nothing when unset, which differs from empty.
struct DeviceEnvironment {
  std::optional<std::string> cuda_visible_devices;        ///< CUDA_VISIBLE_DEVICES
  std::optional<std::string> cuda_device_order;           ///< CUDA_DEVICE_ORDER
  std::optional<std::string> nvidia_visible_devices;      ///< NVIDIA_VISIBLE_DEVICES, for container runtimes
  std::optional<std::string> nvidia_driver_capabilities;  ///< NVIDIA_DRIVER_CAPABILITIES, likewise
  std::optional<std::string> mps_pipe_directory;          ///< CUDA_MPS_PIPE_DIRECTORY
  std::optional<std::string> backend;                     ///< DROVER_BACKEND
};

/// Traces of the daemon of NVIDIA's Multi-Process Service.
struct MpsFacts {
  std::string pipe_directory;    ///< where CUDA looks for it, without the root prefix
  bool has_control = false;      ///< whether the directory holds the daemon's `control`
  bool is_daemon_alive = false;  ///< whether a daemon process is seen in /proc
};

/// Size of a file system.
struct SpaceFacts {
  std::uint64_t total = 0;  ///< bytes
  std::uint64_t free = 0;   ///< bytes this user may still take
};

/// Open files of this process.
struct OpenFileFacts {
  std::uint64_t soft_limit = 0;  ///< RLIMIT_NOFILE now
  std::uint64_t hard_limit = 0;  ///< how far the soft limit can be raised without privilege
  std::uint64_t in_use = 0;      ///< descriptors open now, the one that counts them included
};

/// A memory limit on this process's cgroup or on one above it.
struct MemoryLimit {
  std::string cgroup;       ///< its path below the cgroup file system, "/" for the top
  std::uint64_t limit = 0;  ///< bytes
  std::uint64_t used = 0;   ///< bytes that cannot simply be dropped: usage without inactive file pages
};

/// Everything the doctor judges. A plain value: tests fill it by hand.
struct Facts {
  DriverProbe probe;                        ///< what the driver says
  std::string kernel_module;                ///< version of the loaded nvidia module; empty when not loaded
  std::vector<PciGpu> pci_gpus;             ///< by address
  std::vector<DeviceNode> device_nodes;     ///< /dev/nvidiactl, /dev/nvidiaN, /dev/nvidia-uvm, by path
  bool is_wsl = false;                      ///< GPU through Windows (/dev/dxg): no module, no nodes
  bool is_container = false;                ///< Docker, Podman, Kubernetes or another
  DeviceEnvironment environment;            ///< as this process got it
  MpsFacts mps;                             ///< Multi-Process Service
  std::optional<SpaceFacts> shared_memory;  ///< /dev/shm; nothing when it is not there
  OpenFileFacts open_files;                 ///< of this process
  std::uint64_t memory_total = 0;           ///< bytes of the machine; 0 when unknown
  std::vector<MemoryLimit> memory_limits;   ///< own cgroup first, then those above; only where one is set
  std::optional<int> overcommit_memory;     ///< vm.overcommit_memory
};

/// Reads the machine: files below `root`/proc, `root`/sys and `root`/dev, the environment and the limits of this
/// process. What cannot be read stays empty; never throws for that. Quick, and does not touch the driver: `probe`
/// is passed through.
[[nodiscard]] Facts collect_facts(DriverProbe probe, const std::string& root = "/");

}  // namespace drover
