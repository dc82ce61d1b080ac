// The processes that use a GPU, according to NVML.
#include "device/gpu_processes.hpp"

#include <gtest/gtest.h>

#include "device/cuda/nvml.hpp"

namespace drover::device::cuda {
namespace {

constexpr const char* kUuid = "GPU-07000000-0000-0000-0000-000000000000";

// `count` processes, with the memory of the third unknown.
unsigned process_count = 0;
int handle_answer = 0;
int list_answer = 0;

NvmlDevice the_device() { return reinterpret_cast<NvmlDevice>(&process_count); }

int find_handle(const char* uuid, NvmlDevice* device) {
  EXPECT_STREQ(uuid, kUuid);
  *device = the_device();
  return handle_answer;
}

int list_processes(NvmlDevice device, unsigned* count, NvmlProcess* into) {
  EXPECT_EQ(device, the_device());
  const bool has_room = *count >= process_count;
  *count = process_count;
  if (!has_room) return 7;
  for (unsigned i = 0; i < process_count; ++i) into[i] = {i + 1, i == 2 ? ~0ULL : 1024, 0, 0};
  return list_answer;
}

class GpuProcesses : public testing::Test {
 protected:
  static std::vector<GpuProcess> look(unsigned processes, int handle = 0, int list = 0) {
    process_count = processes;
    handle_answer = handle;
    list_answer = list;
    Nvml library;
    library.nvmlDeviceGetHandleByUUID.set(reinterpret_cast<void*>(&find_handle));
    library.nvmlDeviceGetComputeRunningProcesses_v3.set(reinterpret_cast<void*>(&list_processes));
    return library.processes_on(kUuid);
  }
};

TEST_F(GpuProcesses, are_listed_with_memory_if_known) {
  const auto processes = look(3);
  ASSERT_EQ(processes.size(), 3U);
  EXPECT_EQ(processes[0].pid, 1);
  EXPECT_EQ(processes[0].bytes, 1024U);
  EXPECT_EQ(processes[2].pid, 3);
  EXPECT_EQ(processes[2].bytes, 0U);
}

TEST_F(GpuProcesses, may_be_many) { EXPECT_EQ(look(100).size(), 100U); }

TEST_F(GpuProcesses, are_unknown_if_nvml_does_not_report_them) {
  EXPECT_TRUE(look(3, 6).empty());
  EXPECT_TRUE(look(3, 0, 4).empty());
  EXPECT_TRUE(look(0).empty());
}

TEST_F(GpuProcesses, are_not_queried_in_a_library_without_the_call) {
  process_count = 3;
  EXPECT_TRUE(Nvml().processes_on(kUuid).empty());
  Nvml old;
  old.nvmlDeviceGetHandleByUUID.set(reinterpret_cast<void*>(&find_handle));
  EXPECT_TRUE(old.processes_on(kUuid).empty());
}

TEST_F(GpuProcesses, are_none_on_emulated_devices) {
  DeviceInfo info;
  info.backend = BackendKind::host;
  EXPECT_TRUE(gpu_processes(info).empty());
}

}  // namespace
}  // namespace drover::device::cuda
