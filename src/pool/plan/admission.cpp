#include "pool/plan/admission.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"

namespace drover::pool {
namespace {

std::string user_text(const DeviceUser& user) {
  return fmt::format("process {}{} ({})", user.pid, user.name.empty() ? "" : fmt::format(" '{}'", user.name),
                     user.bytes == 0 ? "unknown size" : format_bytes(user.bytes));
}

std::string users_text(const std::vector<DeviceUser>& users) {
  std::string text;
  for (const auto& user : users) text += (text.empty() ? "" : ", ") + user_text(user);
  return text;
}

// The MPS server of this process is not another user. The kernel truncates names to 15 characters.
bool is_own_server(const MachineDevice& device, const DeviceUser& user) {
  return device.info.mps_running && user.name.starts_with("nvidia-cuda-mps");
}

std::vector<DeviceUser> others_on(const MachineDevice& device, const Machine& machine) {
  auto users = device.users;
  std::erase_if(users,
                [&](const DeviceUser& user) { return user.pid == machine.process || is_own_server(device, user); });
  return users;
}

std::size_t workers_on(const MachineDevice& device, const std::vector<Chosen>& chosen) {
  return static_cast<std::size_t>(std::ranges::count(chosen, &device));
}

void check_no_other_users(const MachineDevice& device, const Machine& machine, const char* why) {
  const auto others = others_on(device, machine);
  if (others.empty()) return;
  throw Error(Errc::busy, fmt::format("{} {}, and is in use by {}", describe(device), why, users_text(others)),
              "end those processes, name other devices, or let workers share");
}

// Checks that there are enough devices, before it checks each one.
void check_count(const Machine& machine, const std::vector<Chosen>& chosen) {
  for (const auto& device : machine.devices) {
    const auto here = workers_on(device, chosen);
    if (here < 2) continue;
    std::size_t used = 0;
    for (const auto& other : machine.devices) used += workers_on(other, chosen) > 0 ? 1U : 0U;
    const auto without = static_cast<std::size_t>(std::ranges::count(chosen, nullptr));
    const auto wanting = chosen.size() - without;
    throw Error(
        Errc::invalid_argument,
        fmt::format("{} workers each need a device of their own, but only {} named, so {} would have {} workers; "
                    "{} missing{}",
                    wanting, used == 1 ? "1 is" : fmt::format("{} are", used), describe(device), here,
                    wanting - used == 1 ? "1 device is" : fmt::format("{} devices are", wanting - used),
                    filter_text(machine)),
        "start fewer workers, name more devices, or do not set `exclusive`");
  }
}

void check_none_at_all(const WorkerPlanOptions& options, const Machine& machine, const std::vector<Chosen>& chosen) {
  const bool wants_devices = options.devices.find("all") != std::string::npos;
  if (!wants_devices || !machine.devices.empty()) return;
  throw Error(Errc::not_found,
              fmt::format("{} workers each need a device of their own, but this process sees none{}", chosen.size(),
                          filter_text(machine)),
              "set devices=\"none\" for workers without devices, or do not set `exclusive`");
}

void check_mode(const WorkerPlanOptions& options, const MachineDevice& device, const Machine& machine,
                std::size_t workers) {
  if (device.info.compute_mode == ComputeMode::prohibited) {
    throw Error(Errc::permission_denied, fmt::format("{} has compute mode \"prohibited\"", describe(device)),
                "name other devices, or have an administrator run `nvidia-smi -c 0`");
  }
  if (device.info.compute_mode != ComputeMode::exclusive_process) return;
  if (device.info.mps_running) return;  // the one process is the MPS server, and all others are its clients
  if (workers > 1 && !options.mps) {
    throw Error(Errc::busy,
                fmt::format("{} has compute mode \"exclusive-process\" and cannot take {} workers", describe(device),
                            workers),
                "place one worker there, set `mps`, or have an administrator run `nvidia-smi -c 0`");
  }
  check_no_other_users(device, machine, "has compute mode \"exclusive-process\"");
}

void check_mps(const MachineDevice& device) {
  if (device.info.backend != BackendKind::cuda) {
    throw Error(Errc::unsupported, fmt::format("{} is an emulated device, which MPS cannot share", describe(device)),
                "do not set `mps`: workers share emulated devices without it");
  }
  if (device.info.mps_running) {
    throw Error(
        Errc::busy, fmt::format("an MPS daemon already serves {} for this process", describe(device)),
        "do not set `mps`, and workers use that daemon; or end it with `echo quit | nvidia-cuda-mps-control`");
  }
}

std::uint64_t context_of(const MachineDevice& device) {
  return device.info.backend == BackendKind::cuda ? kContextEstimate : 0;
}

[[noreturn]] void throw_full(const WorkerPlanOptions& options, const MachineDevice& device, const MemoryInfo& memory,
                             std::size_t workers, std::size_t fitting) {
  const auto share = memory.free / workers;
  const auto context = context_of(device);
  const auto users = users_text(device.users);
  throw Error(Errc::device_memory,
              fmt::format("{} cannot take {} {} of {}{}: {} of {} are free, so {} would fit; {}", describe(device),
                          workers, workers == 1 ? "worker" : "workers", format_bytes(options.memory_budget),
                          context == 0 ? "" : fmt::format(" and {} for the context of each", format_bytes(context)),
                          format_bytes(memory.free), format_bytes(memory.total), fitting,
                          users.empty() ? "the users of the rest are unknown" : "in use by " + users),
              share > context ? fmt::format("start fewer workers there, lower memory_budget to {}, or free memory",
                                            format_bytes(share - context))
                              : "start fewer workers there, or free memory");
}

void check_budget(const WorkerPlanOptions& options, const MachineDevice& device, std::size_t workers) {
  if (options.memory_budget == 0) return;
  if (!device.memory) {
    throw Error(Errc::unsupported, fmt::format("the free memory of {} is unknown", describe(device)),
                "do not set memory_budget; `drover doctor` may say why the driver does not report it");
  }
  const auto context = context_of(device);
  const bool is_beyond = options.memory_budget > std::numeric_limits<std::uint64_t>::max() - context;
  const auto fitting = is_beyond ? 0 : device.memory->free / (options.memory_budget + context);
  if (fitting < workers) throw_full(options, device, *device.memory, workers, fitting);
}

}  // namespace

void admit(const WorkerPlanOptions& options, const Machine& machine, const std::vector<Chosen>& chosen) {
  if (options.exclusive) {
    check_none_at_all(options, machine, chosen);
    check_count(machine, chosen);
  }
  for (const auto& device : machine.devices) {
    const auto workers = workers_on(device, chosen);
    if (workers == 0) continue;
    if (options.mps) check_mps(device);
    check_mode(options, device, machine, workers);
    if (options.exclusive) check_no_other_users(device, machine, "is requested exclusively");
    check_budget(options, device, workers);
  }
}

}  // namespace drover::pool
