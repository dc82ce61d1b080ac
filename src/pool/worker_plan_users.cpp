#include "pool/worker_plan_users.hpp"

#include <fstream>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "device/shared_library.hpp"
#include "drover/base/config.hpp"

namespace drover {
namespace {

constexpr int kTooSmall = 7;  // NVML_ERROR_INSUFFICIENT_SIZE, with the count that is needed
constexpr unsigned kRoomToSpare = 8;
constexpr int kTries = 4;

std::string program_of(unsigned pid) {
  std::string name;
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::getline(file, name);
  return name;
}

std::vector<NvmlProcess> processes_on(void* device, const NvmlProcessCalls& calls) {
  std::vector<NvmlProcess> found(kRoomToSpare);
  for (int attempt = 0; attempt < kTries; ++attempt) {  // processes may start between two calls
    auto count = static_cast<unsigned>(found.size());
    const int code = calls.processes(device, &count, found.data());
    if (code == kTooSmall) {
      found.resize(count + kRoomToSpare);
      continue;
    }
    found.resize(code == 0 ? count : 0);
    return found;
  }
  return {};
}

}  // namespace

NvmlProcessCalls nvml_process_calls() {
  std::string error;
  // Opened a second time it is the one that is there, which the backend never closes.
  const auto library = SharedLibrary::open(environment("DROVER_LIBNVML").value_or("libnvidia-ml.so.1"), error);
  if (!library.is_open()) return {};
  NvmlProcessCalls calls;
  calls.handle_by_uuid =
      reinterpret_cast<decltype(calls.handle_by_uuid)>(library.symbol("nvmlDeviceGetHandleByUUID"));
  calls.processes =
      reinterpret_cast<decltype(calls.processes)>(library.symbol("nvmlDeviceGetComputeRunningProcesses_v3"));
  return calls;
}

std::vector<DeviceUser> users_of(const DeviceInfo& device, const NvmlProcessCalls& calls) {
  if (device.backend != BackendKind::cuda || calls.handle_by_uuid == nullptr || calls.processes == nullptr) return {};
  void* handle = nullptr;
  if (calls.handle_by_uuid(uuid_text(device).c_str(), &handle) != 0) return {};
  std::vector<DeviceUser> users;
  for (const auto& process : processes_on(handle, calls)) {
    const bool is_known = process.bytes != std::numeric_limits<unsigned long long>::max();
    users.push_back({.pid = static_cast<pid_t>(process.pid),
                     .name = program_of(process.pid),
                     .bytes = is_known ? process.bytes : 0});
  }
  return users;
}

}  // namespace drover
