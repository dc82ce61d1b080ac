// drover/observe/doctor.hpp: finds what is wrong with the GPUs and limits of a machine, and says how to fix it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drover/device/info.hpp"

namespace drover {

/// How the query of the driver ended. It runs in a separate process, because the driver may hang or crash.
enum class ProbeOutcome {
  answered,   ///< the report is complete
  timed_out,  ///< no answer within the deadline; the report holds what is known without initialising CUDA
  died,       ///< the querying process ended without a report
};

/// The report on the driver, or why there is none.
struct DriverProbe {
  ProbeOutcome outcome = ProbeOutcome::answered;  ///< whether `report` is complete
  std::string detail;                             ///< in words: "within 30 s", "killed by SIGSEGV"
  DriverReport report;                            ///< all that was found
};

/// An NVIDIA display or compute function on the PCI bus.
struct PciGpu {
  std::string address;  ///< "0000:1b:00.0"
  std::string driver;   ///< "nvidia", "nouveau", "vfio-pci"; empty if none is bound
};

/// A file such as /dev/nvidia0.
struct DeviceNode {
  std::string path;            ///< without the root prefix
  bool is_accessible = false;  ///< whether this user may read and write it
};

/// Environment variables that decide which devices a process sees; nullopt if unset, which differs from empty.
struct DeviceEnvironment {
  std::optional<std::string> cuda_visible_devices;        ///< CUDA_VISIBLE_DEVICES
  std::optional<std::string> cuda_device_order;           ///< CUDA_DEVICE_ORDER
  std::optional<std::string> nvidia_visible_devices;      ///< NVIDIA_VISIBLE_DEVICES, read by container runtimes
  std::optional<std::string> nvidia_driver_capabilities;  ///< NVIDIA_DRIVER_CAPABILITIES, likewise
  std::optional<std::string> mps_pipe_directory;          ///< CUDA_MPS_PIPE_DIRECTORY
  std::optional<std::string> backend;                     ///< DROVER_BACKEND
};

/// State of the daemon of NVIDIA's Multi-Process Service.
struct MpsFacts {
  std::string pipe_directory;    ///< where CUDA looks for it, without the root prefix
  bool has_control = false;      ///< whether the directory holds the daemon's `control` pipe
  bool is_daemon_alive = false;  ///< whether /proc shows a daemon process
};

/// Size of a file system.
struct SpaceFacts {
  std::uint64_t total = 0;  ///< bytes
  std::uint64_t free = 0;   ///< bytes still available to this user
};

/// Open files of this process.
struct OpenFileFacts {
  std::uint64_t soft_limit = 0;  ///< RLIMIT_NOFILE
  std::uint64_t hard_limit = 0;  ///< the highest soft limit without privileges
  std::uint64_t in_use = 0;      ///< open descriptors, including the one used for counting
};

/// A memory limit of this process's cgroup or of an ancestor.
struct MemoryLimit {
  std::string cgroup;       ///< path in the cgroup file system, "/" for the root
  std::uint64_t limit = 0;  ///< bytes
  std::uint64_t used = 0;   ///< bytes in use without inactive file pages, which can be dropped
};

/// All inputs of the doctor. A plain value, so that tests can fill it in.
struct Facts {
  DriverProbe probe;                        ///< report on the driver
  std::string kernel_module;                ///< version of the loaded nvidia module; empty if not loaded
  std::vector<PciGpu> pci_gpus;             ///< by address
  std::vector<DeviceNode> device_nodes;     ///< /dev/nvidiactl, /dev/nvidiaN, /dev/nvidia-uvm, by path
  bool is_wsl = false;                      ///< GPU through Windows (/dev/dxg): no module, no nodes
  bool is_container = false;                ///< Docker, Podman, Kubernetes or another
  DeviceEnvironment environment;            ///< of this process
  MpsFacts mps;                             ///< Multi-Process Service
  std::optional<SpaceFacts> shared_memory;  ///< /dev/shm; nullopt if it is missing
  OpenFileFacts open_files;                 ///< of this process
  std::uint64_t memory_total = 0;           ///< bytes of the machine; 0 if unknown
  std::vector<MemoryLimit> memory_limits;   ///< own cgroup first, then its ancestors; only limits that are set
  std::optional<int> overcommit_memory;     ///< vm.overcommit_memory
};

/// Reads files below `root`/proc, `root`/sys and `root`/dev, and the environment and limits of this process. Values
/// that cannot be read stay empty; that is no error. Quick, and does not touch the driver: `probe` is passed through.
[[nodiscard]] Facts collect_facts(DriverProbe probe, const std::string& root = "/");

/// Importance of a finding, in rising order.
enum class Severity {
  ok,       ///< as it should be
  note,     ///< good to know; no action needed
  warning,  ///< works, but will cause trouble under load or surprise users
  failure,  ///< a requested feature cannot work
};

/// All severities, in rising order.
inline constexpr std::array kAllSeverities = {Severity::ok, Severity::note, Severity::warning, Severity::failure};

/// The result of one check.
struct Finding {
  std::string id;                    ///< stable kebab-case name of the check, e.g. "driver-library"
  Severity severity = Severity::ok;  ///< importance
  std::string summary;               ///< one line
  std::string remedy;                ///< an instruction; empty if ok, or if a note needs no action
};

/// Runs all checks. Pure: the same facts give the same findings, in a fixed order, each id at most once. A check that
/// does not apply to the machine (MIG without a GPU) gives no finding.
[[nodiscard]] std::vector<Finding> diagnose(const Facts& facts);

/// The highest severity among `findings`; `ok` if there are none.
[[nodiscard]] Severity worst(const std::vector<Finding>& findings) noexcept;

/// "ok", "note", "warning" or "failure".
[[nodiscard]] std::string_view to_string(Severity severity) noexcept;

}  // namespace drover
