// drover/pool/worker_plan.hpp: which worker gets which device, CPUs and environment.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "drover/device/info.hpp"
#include "drover/process/spawn_options.hpp"

namespace drover {

/// What is wanted of workers and devices. docs/placement.md has examples.
struct WorkerPlanOptions {
  /// How many workers; 0: one for each entry of `devices`, or one for each core, and 64 at most, where there is no
  /// device. More than there are entries go round; fewer take the first ones.
  std::size_t workers = 0;
  /// "all"; "none" for workers without a device; or entries between commas: an index ("0"), a name ("cuda:0",
  /// "host:1"), a UUID or the beginning of one ("GPU-1b7c"), "cpu" for a worker without a device, "all" for every
  /// device. "cuda:0*3" is the same as the entry three times.
  std::string devices = "all";
  std::size_t per_device = 0;       ///< workers on every device that is named; 0: as `workers` and `devices` say
  bool exclusive = false;           ///< refuse to share a device, with each other or with other processes
  bool sees_all = false;            ///< a worker sees all GPUs, its own first, and so can open tensors of the others
  std::uint64_t memory_budget = 0;  ///< bytes of its device that each worker may use; 0: not looked at
  int threads = 0;         ///< of numerical libraries, for each worker; 0: OMP_NUM_THREADS, or its share of cores
  bool affinity = true;    ///< give workers the CPUs near their devices
  bool mps = false;        ///< workers share GPUs through an MPS daemon of their own
  int mps_percentage = 0;  ///< of a GPU's multiprocessors that a worker may use under MPS; 0: all
};

/// A process that uses a device, as far as the driver tells.
struct DeviceUser {
  pid_t pid = 0;            ///< its id, where it is visible from here
  std::string name;         ///< of its program; empty if unknown
  std::uint64_t bytes = 0;  ///< of the device's memory; 0 if unknown
};

/// A device and what bears on who is placed there.
struct MachineDevice {
  DeviceInfo info;                   ///< what it is
  std::optional<MemoryInfo> memory;  ///< nothing if the driver does not say
  std::vector<DeviceUser> users;     ///< as far as known; none for emulated devices
  std::vector<int> near_cpus;        ///< CPUs on its side of the machine; empty: all are alike
};

/// What planning needs to know. A value: tests and tools make their own.
struct Machine {
  std::vector<MachineDevice> devices;      ///< of the backend that is selected, after CUDA_VISIBLE_DEVICES
  std::vector<int> cpus;                   ///< that the calling thread may use, ascending
  std::vector<std::vector<int>> cores;     ///< the same, those that are hyperthreads of one core together
  std::vector<std::vector<int>> nodes;     ///< the same, by memory node
  std::map<std::string, std::string> set;  ///< environment variables that bear on placement and are set here
  pid_t process = 0;                       ///< this process, which is not in its own way
};

/// The device of a worker.
struct PlannedDevice {
  DeviceInfo info;       ///< as this process sees it
  int worker_index = 0;  ///< its index in the worker: Backend::open(worker_index)
};

/// What one worker is to be given: `name`, `environment`, `unset` and `placement` are for ProcessOptions.
struct WorkerPlan {
  std::string name;                                              ///< "worker-0", ...
  std::optional<PlannedDevice> device;                           ///< nothing for a worker without one
  std::vector<std::pair<std::string, std::string>> environment;  ///< set on top of ours
  std::vector<std::string> unset;                                ///< variables of ours that would defeat the plan
  Placement placement;                                           ///< its CPUs; empty where all are alike
  int threads = 1;                                               ///< what numerical libraries are told
  std::uint64_t memory_budget = 0;                               ///< bytes on its device; 0: no bound, or no device
};

/// GPU memory that the context of a worker is reckoned with when budgets are admitted.
inline constexpr std::uint64_t kContextEstimate = std::uint64_t{523} << 20U;

/// The most workers that can be asked for; more is taken for a slip.
inline constexpr std::size_t kMostWorkers = 4096;

/// Looks at devices, their memory and users, and CPUs; `sysfs` is the folder of the kernel's facts. Initialises no
/// device. Throws what `select_backend` throws.
[[nodiscard]] Machine look_at_machine(const std::string& sysfs = "/sys");

/// Places workers; a pure function. Throws `Errc::invalid_argument` for options that make no sense or contradict each
/// other, `Errc::not_found` for a device that is not there, naming those that are, `Errc::busy` where devices are
/// asked for exclusively and somebody is there, `Errc::device_memory` if the budgets do not fit, saying how much is
/// free and how many workers would fit, `Errc::permission_denied` for a GPU whose compute mode forbids its use,
/// `Errc::unsupported` for MPS on emulated devices and for budgets on a device whose free memory is unknown.
[[nodiscard]] std::vector<WorkerPlan> plan_workers(const WorkerPlanOptions& options, const Machine& machine);

}  // namespace drover
