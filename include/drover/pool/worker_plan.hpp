// drover/pool/worker_plan.hpp: the device, CPUs and environment of each worker.
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

/// The workers and devices of a pool. docs/placement.md has examples.
struct WorkerPlanOptions {
  /// Number of workers; 0: one for each entry of `devices`, or without devices one for each core, up to 64. Workers
  /// take the entries in turn.
  std::size_t workers = 0;
  /// "all"; "none" for workers without a device; or comma-separated entries: an index ("0"), a name ("cuda:0",
  /// "host:1"), a UUID or a prefix of one ("GPU-1b7c"), "cpu" for a worker without a device, "all" for every device.
  /// "cuda:0*3" repeats an entry three times.
  std::string devices = "all";
  std::size_t per_device = 0;       ///< workers on every named device; 0: as `workers` and `devices` say
  bool exclusive = false;           ///< do not share a device, neither with each other nor with other processes
  bool sees_all = false;            ///< a worker sees all GPUs, its own first, and can open tensors of the others
  std::uint64_t memory_budget = 0;  ///< bytes of its device that each worker may use; 0: unlimited
  int threads = 0;         ///< of numerical libraries in each worker; 0: OMP_NUM_THREADS, or its share of cores
  bool affinity = true;    ///< give workers the CPUs near their devices
  bool mps = false;        ///< workers share GPUs through an MPS daemon of their own
  int mps_percentage = 0;  ///< percentage of multiprocessors that a worker may use under MPS; 0: all
};

/// A process that uses a device, as the driver reports it.
struct DeviceUser {
  pid_t pid = 0;            ///< its id, where it is visible from here
  std::string name;         ///< its program; empty if unknown
  std::uint64_t bytes = 0;  ///< device memory in use; 0 if unknown
};

/// A device, with its memory, users and near CPUs.
struct MachineDevice {
  DeviceInfo info;                   ///< what it is
  std::optional<MemoryInfo> memory;  ///< nullopt if the driver does not report it
  std::vector<DeviceUser> users;     ///< as reported by the driver; none for emulated devices
  std::vector<int> near_cpus;        ///< CPUs close to it; empty if all are equal
};

/// The input of planning. A plain value, which tests and tools can make themselves.
struct Machine {
  std::vector<MachineDevice> devices;      ///< of the selected backend, after CUDA_VISIBLE_DEVICES
  std::vector<int> cpus;                   ///< CPUs that the calling thread may use, ascending
  std::vector<std::vector<int>> cores;     ///< those CPUs by core
  std::vector<std::vector<int>> nodes;     ///< those CPUs by NUMA node
  std::map<std::string, std::string> set;  ///< variables of this process that affect placement
  pid_t process = 0;                       ///< this process, which does not count as a user
};

/// The device of a worker.
struct PlannedDevice {
  DeviceInfo info;       ///< as this process sees it
  int worker_index = 0;  ///< its index in the worker: Backend::open(worker_index)
};

/// The plan of one worker: `name`, `environment`, `unset` and `placement` are for ProcessOptions.
struct WorkerPlan {
  std::string name;                                              ///< "worker-0", ...
  std::optional<PlannedDevice> device;                           ///< nullopt for a worker without one
  std::vector<std::pair<std::string, std::string>> environment;  ///< variables to set
  std::vector<std::string> unset;                                ///< inherited variables to remove
  Placement placement;                                           ///< its CPUs; empty if all are equal
  int threads = 1;                                               ///< threads of numerical libraries
  std::uint64_t memory_budget = 0;                               ///< bytes on its device; 0: unlimited, or no device
};

/// GPU memory that admission assumes for the context of a worker.
inline constexpr std::uint64_t kContextEstimate = std::uint64_t{523} << 20U;

/// The most workers that a plan can have.
inline constexpr std::size_t kMostWorkers = 4096;

/// Inspects devices, their memory and users, and CPUs, without initialising a device. Throws as `select_backend`.
[[nodiscard]] Machine look_at_machine(const std::string& sysfs = "/sys");

/// Places workers; a pure function. Throws `Errc::invalid_argument` for invalid or contradictory options,
/// `Errc::not_found` for a device that does not exist, `Errc::busy` for an exclusive device that is in use,
/// `Errc::device_memory` if the budgets do not fit, `Errc::permission_denied` for a GPU whose compute mode prohibits
/// its use, `Errc::unsupported` for MPS on emulated devices and for budgets on a device whose free memory is unknown.
[[nodiscard]] std::vector<WorkerPlan> plan_workers(const WorkerPlanOptions& options, const Machine& machine);

}  // namespace drover
