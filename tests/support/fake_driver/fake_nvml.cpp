// A libnvidia-ml.so.1 that answers according to fake_settings.hpp.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "support/fake_driver/fake_settings.hpp"

namespace fake = drover::test::fake;

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr int kNotFound = 6;

// A handle is the GPU's number plus one, and the MIG instance's number plus one in the next byte.
using Handle = std::uintptr_t;

Handle make_handle(unsigned gpu, unsigned instance) { return (gpu + 1) | (instance << 8U); }
int gpu_of(Handle handle) { return static_cast<int>(handle & 0xffU) - 1; }
unsigned instance_of(Handle handle) { return static_cast<unsigned>(handle >> 8U); }

int mig_instances() { return fake::is_set("FAKE_MIG") ? fake::number("FAKE_MIG_INSTANCES", 0) : 0; }

void write_text(char* to, unsigned length, const char* text) {
  static_cast<void>(std::snprintf(to, length, "%s", text));
}

}  // namespace

// The names and layouts from here on are NVML's.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};

int nvmlInit_v2() {
  if (fake::is_set("FAKE_NVML_HANG")) fake::hang();
  return fake::number("FAKE_NVML_RESULT", kSuccess);
}

int nvmlShutdown() { return kSuccess; }

const char* nvmlErrorString(int code) {
  switch (code) {
    case kSuccess: return "Success";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
  }
}

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  const char* const chosen = std::getenv("FAKE_DRIVER_VERSION");
  write_text(version, length, chosen == nullptr ? "580.1.2" : chosen);
  return kSuccess;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(fake::gpu_count());
  return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle* device) {
  if (index >= static_cast<unsigned>(fake::gpu_count())) return kInvalidArgument;
  *device = make_handle(index, 0);
  return kSuccess;
}

int nvmlDeviceGetName(Handle device, char* name, unsigned length) {
  write_text(name, length, fake::gpu_name(gpu_of(device)).c_str());
  return kSuccess;
}

int nvmlDeviceGetUUID(Handle device, char* uuid, unsigned length) {
  const unsigned instance = instance_of(device);
  const unsigned second = instance == 0 ? fake::kUuidByte : instance;
  static_cast<void>(std::snprintf(uuid, length, "%s-fafafafa-fafa-fafa-fafa-fafafafa%02x%02x",
                                  instance == 0 ? "GPU" : "MIG", second, unsigned{fake::uuid_end(gpu_of(device))}));
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo(Handle /*device*/, Memory* memory) {
  *memory = {fake::kGpuMemory, fake::kGpuMemoryFree, fake::kGpuMemory - fake::kGpuMemoryFree};
  return fake::number("FAKE_MEMORY_RESULT", kSuccess);
}

int nvmlDeviceGetPciInfo_v3(Handle device, PciInfo* pci) {
  *pci = {};
  pci->bus = static_cast<unsigned>(gpu_of(device)) + 0xfaU;
  static_cast<void>(std::snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%02X:00.0", pci->bus));
  return kSuccess;
}

int nvmlDeviceGetComputeMode(Handle /*device*/, int* mode) {
  *mode = fake::number("FAKE_COMPUTE_MODE", 0);
  return kSuccess;
}

int nvmlDeviceGetMigMode(Handle device, unsigned* current, unsigned* pending) {
  if (instance_of(device) != 0) return kInvalidArgument;
  *current = fake::is_set("FAKE_MIG") ? 1 : 0;
  *pending = *current;
  return kSuccess;
}

int nvmlDeviceGetMaxMigDeviceCount(Handle /*device*/, unsigned* count) {
  *count = 7;
  return kSuccess;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Handle device, unsigned index, Handle* instance) {
  if (index >= static_cast<unsigned>(mig_instances())) return kNotFound;
  *instance = make_handle(static_cast<unsigned>(gpu_of(device)), index + 1);
  return kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
