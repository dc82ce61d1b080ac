// A libcuda.so.1 with every entry point of driver.def. It answers queries about the machine according to
// fake_settings.hpp and refuses all work with CUDA_ERROR_NOT_SUPPORTED, except memory calls with FAKE_MEMORY.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

#include "device/cuda/api_types.hpp"
#include "support/fake_driver/fake_memory.hpp"
#include "support/fake_driver/fake_settings.hpp"

namespace drover::device::cuda {
namespace {

namespace fake = drover::test::fake;

constexpr CUresult kNotSupported = 801;
constexpr CUresult kInvalidDevice = 101;

struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};

constexpr std::array kErrorTexts = {
    ErrorText{46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    ErrorText{100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    ErrorText{802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    ErrorText{803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
              "system has unsupported display driver / cuda driver combination"},
    ErrorText{804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
              "forward compatibility was attempted on non supported HW"},
    ErrorText{805, "CUDA_ERROR_MPS_CONNECTION_FAILED", "MPS client failed to connect to the MPS control daemon"},
    ErrorText{999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const ErrorText* find_text(CUresult code) {
  const auto* const found = std::ranges::find(kErrorTexts, code, &ErrorText::code);
  return found == kErrorTexts.end() ? nullptr : found;
}

CUresult init(unsigned /*flags*/) {
  if (fake::is_set("FAKE_CHATTER")) {
    static_cast<void>(std::puts("the driver says hello"));
    static_cast<void>(std::fflush(stdout));
  }
  if (fake::is_set("FAKE_CUINIT_HANG")) fake::hang();
  if (fake::is_set("FAKE_CUINIT_CRASH")) {
    static_cast<void>(
        std::signal(SIGSEGV, SIG_DFL));  // NOLINT(performance-no-int-to-ptr): bypasses a sanitizer's handler
    static_cast<void>(std::raise(SIGSEGV));
  }
  return fake::number("FAKE_CUINIT_RESULT", 0);
}

CUresult driver_version(int* version) {
  *version = fake::number("FAKE_CUDA_VERSION", 13000);
  return kSuccess;
}

CUresult error_name(CUresult code, const char** name) {
  const auto* const found = find_text(code);
  *name = found == nullptr ? nullptr : found->name;
  return found == nullptr ? kInvalidValue : kSuccess;
}

CUresult error_string(CUresult code, const char** text) {
  const auto* const found = find_text(code);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? kInvalidValue : kSuccess;
}

CUresult device_count(int* count) {
  *count = fake::gpu_count();
  return kSuccess;
}

CUresult device_get(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal < fake::gpu_count() ? kSuccess : kInvalidDevice;
}

CUresult device_uuid(CUuuid* uuid, CUdevice device) {
  std::memset(uuid->bytes, fake::kUuidByte, sizeof(uuid->bytes));
  uuid->bytes[15] = fake::uuid_end(device);
  return kSuccess;
}

template <class Signature>
struct Refusal;
template <class... Parameters>
struct Refusal<CUresult(Parameters...)> {
  static CUresult answer(Parameters... /*ignored*/) { return kNotSupported; }
};

struct Entry {
  const char* name;
  void* address;
};

template <class Function>
Entry entry(const char* name, Function* function) {
  return {name, reinterpret_cast<void*>(function)};
}

void* address_of(const char* name) {
  if (void* const works = fake::is_set("FAKE_MEMORY") ? fake::memory_entry(name) : nullptr; works != nullptr)
    return works;
  static const auto known = std::to_array<Entry>({
      entry("cuInit", init),
      entry("cuDriverGetVersion", driver_version),
      entry("cuGetErrorName", error_name),
      entry("cuGetErrorString", error_string),
      entry("cuDeviceGetCount", device_count),
      entry("cuDeviceGet", device_get),
      entry("cuDeviceGetUuid", device_uuid),
#define DROVER_CUDA(name, version, need, parameters) entry(#name, Refusal<CUresult parameters>::answer),
#include "device/cuda/driver.def"
#undef DROVER_CUDA
  });
  const auto* const found =
      std::ranges::find_if(known, [&](const Entry& candidate) { return std::strcmp(candidate.name, name) == 0; });
  return found == known.end() ? nullptr : found->address;
}

bool is_hidden(const char* name) {
  for (int place = 0; !fake::piece("FAKE_CUDA_MISSING", place).empty(); ++place) {
    if (fake::piece("FAKE_CUDA_MISSING", place) == name) return true;
  }
  return false;
}

}  // namespace
}  // namespace drover::device::cuda

// The names are the driver's.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int cuGetProcAddress_v2(const char* symbol, void** address, int /*version*/, std::uint64_t /*flags*/,
                                   int* status) {
  *address = drover::device::cuda::is_hidden(symbol) ? nullptr : drover::device::cuda::address_of(symbol);
  *status = *address == nullptr ? 1 : 0;
  return *address == nullptr ? drover::device::cuda::kNotFound : drover::device::cuda::kSuccess;
}
