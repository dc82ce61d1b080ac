#include "drover/device/backend.hpp"

#include <optional>

#include <fmt/format.h>

#include "base/config.hpp"
#include "device/cuda/backend.hpp"
#include "device/host/backend.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"

namespace drover {
namespace {

// Backends are never destroyed: their threads, and static objects that use them, may outlive main.
Backend& host_backend() {
  static auto* const backend = new device::host::HostBackend;
  return *backend;
}

Backend& cuda_backend() {
  static auto* const backend = new device::cuda::CudaBackend;  // if it throws, the next call retries
  return *backend;
}

std::string count_of(const Backend& backend, const char* one, const char* many) {
  const auto count = backend.devices().size();
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

Selection select_automatically() {
  try {
    Backend& cuda = cuda_backend();
    return {cuda, count_of(cuda, "GPU is visible", "GPUs are visible")};
  } catch (const Error& error) {
    // A machine without a GPU is normal; a GPU that cannot be used is worth a warning.
    const bool is_normal = error.code() == Errc::driver_missing || error.code() == Errc::not_found;
    if (!is_normal) log(LogLevel::warn, error.message());
    return {host_backend(), fmt::format("emulated devices, because {}", error.message())};
  }
}

Selection select_now() {
  const auto asked = environment("DROVER_BACKEND").value_or("auto");
  if (asked == "auto") return select_automatically();
  if (asked == "host") return {host_backend(), "DROVER_BACKEND=host asks for emulated devices"};
  if (asked == "cuda") return {cuda_backend(), "DROVER_BACKEND=cuda asks for GPUs"};
  throw Error(Errc::invalid_argument, fmt::format("DROVER_BACKEND={} names no backend", asked),
              "set it to auto, host or cuda, or unset it");
}

}  // namespace

const Selection& select_backend() {
  static const Selection selection = [] {
    Selection chosen = select_now();
    log(LogLevel::info, chosen.reason);
    return chosen;
  }();
  return selection;
}

Backend& backend_of(BackendKind kind) { return kind == BackendKind::cuda ? cuda_backend() : host_backend(); }

std::vector<Backend*> available_backends() {
  std::vector<Backend*> available = {&host_backend()};
  try {
    available.push_back(&cuda_backend());
  } catch (const Error& error) {
    log(LogLevel::debug, error.message());
  }
  return available;
}

int device_with_uuid(const Backend& backend, const Uuid& uuid) {
  std::string seen;
  for (const auto& info : backend.devices()) {
    if (info.uuid == uuid) return info.index;
    seen += fmt::format("{}{} ({})", seen.empty() ? "" : ", ", device_id(info), to_string(info.uuid));
  }
  throw Error(Errc::not_found, fmt::format("no device {} is visible to this process, only {}", to_string(uuid), seen),
              "give both processes the same CUDA_VISIBLE_DEVICES, DROVER_HOST_DEVICES and DROVER_HOST_GROUP");
}

}  // namespace drover
