// Devices, CPUs and environment of workers, on machines made by hand.
#include "drover/pool/worker_plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/device/backend.hpp"
#include "pool/plan/machine.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"
#include "support/scoped_environment.hpp"

namespace drover::test {
namespace {

using Cpus = std::vector<int>;

Cpus range(int first, int last) {
  Cpus cpus(static_cast<std::size_t>(last - first + 1));
  std::iota(cpus.begin(), cpus.end(), first);
  return cpus;
}

MachineDevice device(BackendKind kind, int index) {
  MachineDevice made;
  made.info.backend = kind;
  made.info.index = index;
  made.info.uuid.bytes = {0xab, 0, 0, static_cast<std::uint8_t>(index)};
  made.info.name = kind == BackendKind::cuda ? "NVIDIA Test" : "emulated";
  made.info.memory_total = 16 * kGiB;
  made.memory = MemoryInfo{.total = 16 * kGiB, .free = 12 * kGiB};
  return made;
}

// One NUMA node, no hyperthreads.
Machine machine_with(int devices, int cpus = 16, BackendKind kind = BackendKind::cuda) {
  Machine made;
  for (int i = 0; i < devices; ++i) made.devices.push_back(device(kind, i));
  made.cpus = range(0, cpus - 1);
  made.nodes = {made.cpus};
  for (const int cpu : made.cpus) made.cores.push_back({cpu});
  made.process = 100;
  return made;
}

std::string value_of(const WorkerPlan& plan, const std::string& name) {
  const auto found = std::ranges::find(plan.environment, name, [](const auto& pair) { return pair.first; });
  return found == plan.environment.end() ? "(not given)" : found->second;
}

// "0 1 0 -": the device of each worker.
std::string devices_of(const std::vector<WorkerPlan>& plans) {
  std::string text;
  for (const auto& plan : plans) {
    text += text.empty() ? "" : " ";
    text += plan.device ? std::to_string(plan.device->info.index) : "-";
  }
  return text;
}

void expect_refused(Errc code, const WorkerPlanOptions& options, const Machine& machine,
                    const std::vector<std::string>& parts) {
  expect_error(code, [&] { static_cast<void>(plan_workers(options, machine)); }, parts);
}

// ---- devices

struct DeviceRow {
  int devices;
  std::size_t workers;
  const char* list;
  std::size_t per_device;
  const char* expected;
};

class PlannedDevices : public testing::TestWithParam<DeviceRow> {};

TEST_P(PlannedDevices, are_assigned_as_the_table_says) {
  const auto& row = GetParam();
  const auto plans = plan_workers({.workers = row.workers, .devices = row.list, .per_device = row.per_device},
                                  machine_with(row.devices, 4));
  EXPECT_EQ(devices_of(plans), row.expected);
  for (std::size_t i = 0; i < plans.size(); ++i) EXPECT_EQ(plans[i].name, fmt::format("worker-{}", i));
}

INSTANTIATE_TEST_SUITE_P(
    Table, PlannedDevices,
    testing::Values(
        // one for each device, or for each core without devices
        DeviceRow{0, 0, "all", 0, "- - - -"}, DeviceRow{1, 0, "all", 0, "0"}, DeviceRow{2, 0, "all", 0, "0 1"},
        DeviceRow{8, 0, "all", 0, "0 1 2 3 4 5 6 7"}, DeviceRow{2, 0, "none", 0, "- - - -"},
        // a number of workers
        DeviceRow{0, 2, "all", 0, "- -"}, DeviceRow{1, 3, "all", 0, "0 0 0"}, DeviceRow{2, 5, "all", 0, "0 1 0 1 0"},
        DeviceRow{8, 3, "all", 0, "0 1 2"}, DeviceRow{2, 1, "none", 0, "-"},
        // lists
        DeviceRow{8, 0, "5,2", 0, "5 2"}, DeviceRow{8, 0, " cuda:1 , 0 ", 0, "1 0"},
        DeviceRow{2, 0, "cuda:0,cuda:1,cpu,cpu", 0, "0 1 - -"}, DeviceRow{2, 0, "cuda:1*3", 0, "1 1 1"},
        DeviceRow{2, 0, "cpu * 2, 1", 0, "- - 1"}, DeviceRow{2, 0, "all*2,cpu", 0, "0 1 0 1 -"},
        DeviceRow{2, 0, "0,0", 0, "0 0"}, DeviceRow{2, 4, "0,cpu", 0, "0 - 0 -"}, DeviceRow{0, 0, "cpu", 0, "-"},
        DeviceRow{8, 0, "GPU-ab000005", 0, "5"},
        DeviceRow{8, 0, "GPU-ab000005-0000-0000-0000-000000000000,0", 0, "5 0"},
        // per device
        DeviceRow{2, 0, "all", 2, "0 1 0 1"}, DeviceRow{8, 0, "7,3", 2, "7 3 7 3"},
        DeviceRow{2, 0, "all,cpu", 2, "0 1 0 1 -"}, DeviceRow{2, 4, "all", 2, "0 1 0 1"},
        DeviceRow{0, 0, "all", 2, "- - - -"}));

TEST(PlannedDevice, has_its_index_here_and_in_the_worker) {
  const auto gpus = plan_workers({}, machine_with(2));
  EXPECT_EQ(device_id(gpus[1].device->info), "cuda:1");
  EXPECT_EQ(gpus[1].device->worker_index, 0) << "the only one it sees";
  const auto emulated = plan_workers({.devices = "host:1"}, machine_with(2, 16, BackendKind::host));
  EXPECT_EQ(emulated[0].device->info.uuid, device(BackendKind::host, 1).info.uuid);
  EXPECT_EQ(emulated[0].device->worker_index, 1) << "it sees all of them";
}

TEST(DeviceList, with_an_invalid_entry_is_refused) {
  for (const char* const list : {"", ",", "0,", "cuda:0*", "cuda:0*0", "cuda:0*x", "cuda:0*-1", "*2", "0*99999"}) {
    SCOPED_TRACE(list);
    expect_refused(Errc::invalid_argument, {.devices = list}, machine_with(1), {"is invalid", "cuda:0*3"});
  }
  for (const char* const list : {"gpu", "none,0", "-1", "cuda"}) {
    SCOPED_TRACE(list);
    expect_refused(Errc::invalid_argument, {.devices = list}, machine_with(1),
                   {"is not the name of a device", "GPU-1b7c"});
  }
}

TEST(DeviceList, with_a_missing_device_names_the_existing_ones) {
  auto machine = machine_with(2);
  for (const char* const list : {"7", "cuda:7", "host:0", "GPU-ff"}) {
    SCOPED_TRACE(list);
    expect_refused(Errc::not_found, {.devices = list}, machine,
                   {fmt::format("no device \"{}\"", list), "cuda:0 (NVIDIA Test, GPU-ab000000-", "cuda:1"});
  }
  machine.set["CUDA_VISIBLE_DEVICES"] = "3,5";
  expect_refused(Errc::not_found, {.devices = "2"}, machine, {"(CUDA_VISIBLE_DEVICES=3,5 hides all others)"});
  expect_refused(Errc::not_found, {.devices = "0"}, machine_with(0), {"this process sees no device"});
}

TEST(DeviceList, with_an_ambiguous_uuid_is_refused) {
  expect_refused(Errc::invalid_argument, {.devices = "GPU-ab"}, machine_with(3),
                 {"\"GPU-ab\" names 3 devices", "write more of the UUID"});
}

TEST(WorkerCount, that_contradicts_itself_is_refused) {
  expect_refused(Errc::invalid_argument, {.workers = 3, .per_device = 2}, machine_with(2),
                 {"workers=3 contradicts per_device=2, which makes 4", "set only one of them"});
  expect_refused(Errc::invalid_argument, {.devices = "0*2", .per_device = 2}, machine_with(2),
                 {"devices=\"0*2\" and per_device=2 both set", "set only one of them"});
}

TEST(WorkerCount, has_a_default_limit) {
  EXPECT_EQ(plan_workers({}, machine_with(0, 300)).size(), 64U);
  EXPECT_EQ(plan_workers({.workers = 200}, machine_with(0, 300)).size(), 200U);
}

TEST(WorkerCount, above_the_limit_is_refused) {
  const auto slip = static_cast<std::size_t>(-1);
  expect_refused(Errc::invalid_argument, {.workers = slip}, machine_with(1), {"the limit of 4096"});
  expect_refused(Errc::invalid_argument, {.per_device = slip}, machine_with(1), {"the limit of 4096"});
}

TEST(Numbers, out_of_range_are_refused) {
  expect_refused(Errc::invalid_argument, {.threads = -1}, machine_with(1), {"threads is negative"});
  expect_refused(Errc::invalid_argument, {.mps = true, .mps_percentage = 101}, machine_with(1),
                 {"between 0 and 100"});
  expect_refused(Errc::invalid_argument, {.mps_percentage = 50}, machine_with(1), {"without mps"});
}

// ---- admission

TEST(Exclusive, gives_each_worker_its_own_device) {
  EXPECT_EQ(devices_of(plan_workers({.workers = 2, .exclusive = true}, machine_with(8))), "0 1");
  EXPECT_EQ(devices_of(plan_workers({.devices = "1,cpu,cpu", .exclusive = true}, machine_with(2))), "1 - -");
  EXPECT_EQ(devices_of(plan_workers({.workers = 1, .devices = "none", .exclusive = true}, machine_with(0))), "-");
}

TEST(Exclusive, with_too_few_devices_says_what_is_missing) {
  auto machine = machine_with(2);
  machine.set["CUDA_VISIBLE_DEVICES"] = "0,1";
  expect_refused(
      Errc::invalid_argument, {.workers = 5, .exclusive = true}, machine,
      {"5 workers each need a device of their own, but only 2 are named", "cuda:0 (NVIDIA Test) would have 3 workers",
       "3 devices are missing", "CUDA_VISIBLE_DEVICES=0,1", "start fewer workers"});
  expect_refused(Errc::invalid_argument, {.devices = "1*2,cpu", .exclusive = true}, machine,
                 {"2 workers each need a device", "1 is named", "1 device is missing"});
  expect_refused(Errc::not_found, {.workers = 2, .exclusive = true}, machine_with(0),
                 {"2 workers each need a device of their own, but this process sees none", "devices=\"none\""});
}

TEST(Exclusive, on_a_device_in_use_names_its_users) {
  auto machine = machine_with(2);
  machine.devices[0].users = {{.pid = 100, .name = "me", .bytes = kGiB}};
  machine.devices[1].users = {{.pid = 77, .name = "python3", .bytes = 4 * kGiB}, {.pid = 78, .name = "", .bytes = 0}};
  EXPECT_EQ(devices_of(plan_workers({.workers = 1, .exclusive = true}, machine)), "0")
      << "this process does not count";
  expect_refused(Errc::busy, {.exclusive = true}, machine,
                 {"cuda:1 (NVIDIA Test) is requested exclusively", "process 77 'python3' (4.0 GiB)",
                  "process 78 (unknown size)", "end those processes"});
  EXPECT_EQ(plan_workers({}, machine).size(), 2U) << "sharing is allowed";
}

TEST(Exclusive, a_growing_pool_does_not_conflict_with_itself) {
  auto machine = machine_with(2);
  machine.devices[0].users = {{.pid = 7, .name = "worker", .bytes = 3 * kGiB}, {.pid = 8, .bytes = 2 * kGiB}};
  machine.devices[0].memory = MemoryInfo{.total = 16 * kGiB, .free = kGiB};
  const auto seen = pool::without(machine, {7, 9});
  ASSERT_EQ(seen.devices[0].users.size(), 1U);
  EXPECT_EQ(seen.devices[0].users[0].pid, 8);
  EXPECT_EQ(seen.devices[0].memory->free, 4 * kGiB);
  expect_refused(Errc::busy, {.exclusive = true}, seen, {"process 8"});
  EXPECT_EQ(plan_workers({.exclusive = true}, pool::without(machine, {7, 8})).size(), 2U);
  machine.devices[0].memory->free = 15 * kGiB;
  EXPECT_EQ(pool::without(machine, {7}).devices[0].memory->free, 16 * kGiB) << "never more than there is";
  machine.devices[0].memory.reset();
  EXPECT_FALSE(pool::without(machine, {7}).devices[0].memory);
}

TEST(ComputeMode, is_respected) {
  auto machine = machine_with(2);
  machine.devices[1].info.compute_mode = ComputeMode::prohibited;
  expect_refused(Errc::permission_denied, {}, machine, {"cuda:1", "prohibited", "nvidia-smi -c 0"});
  machine.devices[1].info.compute_mode = ComputeMode::exclusive_process;
  EXPECT_EQ(plan_workers({}, machine).size(), 2U);
  expect_refused(Errc::busy, {.per_device = 3}, machine,
                 {"cuda:1", "exclusive-process", "cannot take 3 workers", "`mps`"});
  EXPECT_EQ(plan_workers({.per_device = 3, .mps = true}, machine).size(), 6U);
  machine.devices[1].users = {{.pid = 5, .name = "nvidia-cuda-mps-server", .bytes = kMiB}};
  expect_refused(Errc::busy, {.mps = true}, machine,
                 {"exclusive-process", "process 5 'nvidia-cuda-mps-server' (1.0 MiB)"});
}

TEST(ComputeMode, exclusive_process_is_shared_through_a_running_daemon) {
  auto machine = machine_with(1);
  machine.devices[0].info.compute_mode = ComputeMode::exclusive_process;
  machine.devices[0].info.mps_running = true;
  machine.devices[0].users = {{.pid = 5, .name = "nvidia-cuda-mps", .bytes = kMiB}};  // as the kernel truncates it
  EXPECT_EQ(plan_workers({.per_device = 3}, machine).size(), 3U);
  EXPECT_EQ(plan_workers({.exclusive = true}, machine).size(), 1U);
  machine.devices[0].users.push_back({.pid = 6, .name = "train", .bytes = kMiB});
  EXPECT_EQ(plan_workers({.per_device = 3}, machine).size(), 3U);
  expect_refused(Errc::busy, {.exclusive = true}, machine, {"process 6 'train'"});
}

TEST(MpsOption, needs_gpus_without_a_daemon) {
  expect_refused(Errc::unsupported, {.mps = true}, machine_with(1, 4, BackendKind::host),
                 {"host:0", "do not set `mps`"});
  auto machine = machine_with(1);
  machine.devices[0].info.mps_running = true;
  expect_refused(Errc::busy, {.mps = true}, machine,
                 {"an MPS daemon already serves cuda:0", "workers use that daemon"});
  EXPECT_EQ(plan_workers({}, machine).size(), 1U);
}

TEST(Budget, that_fits_is_passed_on) {
  const auto plans = plan_workers({.devices = "0*2,cpu", .memory_budget = 5 * kGiB}, machine_with(1));
  EXPECT_EQ(plans[0].memory_budget, 5 * kGiB);
  EXPECT_EQ(plans[2].memory_budget, 0U) << "it has no device";
}

TEST(Budget, counts_a_context_for_each_worker_on_a_gpu) {
  const auto share = 6 * kGiB;
  expect_refused(Errc::device_memory, {.workers = 2, .memory_budget = share}, machine_with(1),
                 {"cuda:0 (NVIDIA Test) cannot take 2 workers of 6.0 GiB and 523.0 MiB for the context of each",
                  "12.0 GiB of 16.0 GiB are free", "1 would fit", "the users of the rest are unknown",
                  "lower memory_budget to 5.5 GiB"});
  EXPECT_EQ(plan_workers({.workers = 2, .memory_budget = share - kContextEstimate}, machine_with(1)).size(), 2U);
  const auto emulated = machine_with(1, 4, BackendKind::host);
  EXPECT_EQ(plan_workers({.workers = 2, .memory_budget = share}, emulated).size(), 2U);
  expect_refused(Errc::device_memory, {.workers = 2, .memory_budget = share + 1}, emulated,
                 {"host:0 (emulated) cannot take 2 workers of 6.0 GiB: 12.0 GiB"});
}

TEST(Budget, that_does_not_fit_names_the_users_of_the_memory) {
  auto machine = machine_with(2);
  machine.devices[1].memory->free = 100 * kMiB;
  machine.devices[1].users = {{.pid = 77, .name = "train", .bytes = 15 * kGiB}};
  expect_refused(Errc::device_memory, {.memory_budget = kGiB}, machine,
                 {"cuda:1", "1 worker of 1.0 GiB", "0 would fit", "in use by process 77 'train' (15.0 GiB)",
                  "start fewer workers there, or free memory"});
}

TEST(Budget, of_any_size_does_not_overflow) {
  const auto most = std::numeric_limits<std::uint64_t>::max();
  expect_refused(Errc::device_memory, {.memory_budget = most}, machine_with(1), {"0 would fit"});
  expect_refused(Errc::device_memory, {.workers = 4, .memory_budget = most / 2}, machine_with(1), {"0 would fit"});
}

TEST(Budget, needs_a_known_free_memory) {
  auto machine = machine_with(1);
  machine.devices[0].memory.reset();
  expect_refused(Errc::unsupported, {.memory_budget = 1}, machine,
                 {"cuda:0", "free memory of cuda:0", "drover doctor"});
  EXPECT_EQ(plan_workers({}, machine).size(), 1U);
}

// ---- environment

TEST(WorkerEnvironment, shows_a_worker_its_own_gpu) {
  const auto plans = plan_workers({.devices = "1,cpu"}, machine_with(3));
  EXPECT_EQ(value_of(plans[0], "CUDA_VISIBLE_DEVICES"), "GPU-ab000001-0000-0000-0000-000000000000");
  EXPECT_EQ(value_of(plans[0], "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
  EXPECT_EQ(value_of(plans[0], "TF_FORCE_GPU_ALLOW_GROWTH"), "true");
  EXPECT_EQ(value_of(plans[0], "XLA_PYTHON_CLIENT_PREALLOCATE"), "false");
  EXPECT_EQ(value_of(plans[1], "CUDA_VISIBLE_DEVICES"), "") << "hides all";
  EXPECT_EQ(value_of(plans[1], "CUDA_DEVICE_ORDER"), "(not given)");
}

TEST(WorkerEnvironment, lists_its_own_gpu_first_with_sees_all) {
  auto machine = machine_with(3);
  const std::string end = "-0000-0000-0000-000000000000";
  EXPECT_EQ(value_of(plan_workers({.devices = "1", .sees_all = true}, machine)[0], "CUDA_VISIBLE_DEVICES"),
            "GPU-ab000001" + end + ",GPU-ab000000" + end + ",GPU-ab000002" + end);
  machine.devices[1].info.is_mig_instance = true;
  EXPECT_EQ(value_of(plan_workers({.devices = "1", .sees_all = true}, machine)[0], "CUDA_VISIBLE_DEVICES"),
            "MIG-ab000001" + end);
  EXPECT_EQ(value_of(plan_workers({.devices = "0", .sees_all = true}, machine)[0], "CUDA_VISIBLE_DEVICES"),
            "GPU-ab000000" + end + ",GPU-ab000002" + end);
}

TEST(WorkerEnvironment, keeps_the_user_s_variables) {
  auto machine = machine_with(1);
  machine.set = {{"OMP_NUM_THREADS", "9"}, {"TF_FORCE_GPU_ALLOW_GROWTH", "false"}, {"CUDA_VISIBLE_DEVICES", "0"}};
  const auto plan = plan_workers({}, machine)[0];
  const auto planned = plan_workers({.threads = 4}, machine)[0];
  for (const char* const name :
       {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"}) {
    EXPECT_EQ(value_of(plan, name), "(not given)") << name << " follows OMP_NUM_THREADS";
    EXPECT_EQ(value_of(planned, name), "4") << name;
  }
  EXPECT_EQ(value_of(plan, "TF_FORCE_GPU_ALLOW_GROWTH"), "(not given)");
  EXPECT_EQ(value_of(plan, "CUDA_VISIBLE_DEVICES"), "GPU-ab000000-0000-0000-0000-000000000000");
}

// Connections for kernels, and those for copies.
std::string connections_of(const WorkerPlanOptions& options, const Machine& machine, std::size_t worker = 0) {
  const auto plan = plan_workers(options, machine).at(worker);
  return value_of(plan, "CUDA_DEVICE_MAX_CONNECTIONS") + " " + value_of(plan, "CUDA_DEVICE_MAX_COPY_CONNECTIONS");
}

constexpr const char* kLeftAlone = "(not given) (not given)";

TEST(WorkerEnvironment, workers_of_one_gpu_share_the_queues_of_one_process) {
  const auto machine = machine_with(2);
  EXPECT_EQ(connections_of({.workers = 2}, machine), kLeftAlone) << "one worker on each GPU";
  EXPECT_EQ(connections_of({.workers = 4}, machine), "4 2");
  EXPECT_EQ(connections_of({.devices = "cuda:0*3"}, machine), "2 1");
  EXPECT_EQ(connections_of({.devices = "cuda:0*4"}, machine), "2 1");
  EXPECT_EQ(connections_of({.devices = "cuda:0*64"}, machine), "2 1");
  const WorkerPlanOptions mix{.devices = "cuda:0*2,cuda:1,cpu*2"};
  EXPECT_EQ(connections_of(mix, machine, 0), "4 2");
  EXPECT_EQ(connections_of(mix, machine, 2), kLeftAlone) << "alone on the other GPU";
  EXPECT_EQ(connections_of(mix, machine, 3), kLeftAlone) << "without a device";
  EXPECT_EQ(connections_of({.devices = "cuda:0*4", .mps = true}, machine), kLeftAlone) << "clients of MPS";
  EXPECT_EQ(connections_of({.workers = 4}, machine_with(1, 8, BackendKind::host)), kLeftAlone) << "emulated";
}

TEST(WorkerEnvironment, keeps_the_user_s_number_of_queues) {
  auto machine = machine_with(1);
  machine.set = {{"CUDA_DEVICE_MAX_CONNECTIONS", "32"}};
  EXPECT_EQ(connections_of({.workers = 4}, machine), kLeftAlone) << "which is for copies, too";
  machine.set = {{"CUDA_DEVICE_MAX_COPY_CONNECTIONS", "8"}};
  EXPECT_EQ(connections_of({.workers = 4}, machine), "2 (not given)");
}

TEST(WorkerEnvironment, keeps_the_threads_set_for_one_library) {
  auto machine = machine_with(1, 4);
  machine.set = {{"MKL_NUM_THREADS", "9"}};
  const auto plan = plan_workers({}, machine)[0];
  EXPECT_EQ(value_of(plan, "MKL_NUM_THREADS"), "(not given)");
  EXPECT_EQ(value_of(plan, "OMP_NUM_THREADS"), std::to_string(plan.threads));
}

TEST(WorkerEnvironment, shows_all_emulated_devices_the_same) {
  const auto plans = plan_workers({.devices = "host:1,cpu"}, machine_with(3, 8, BackendKind::host));
  for (const auto& plan : plans) {
    EXPECT_EQ(value_of(plan, "DROVER_HOST_DEVICES"), "3");
    EXPECT_EQ(value_of(plan, "DROVER_HOST_MEMORY"), std::to_string(16 * kGiB));
  }
  EXPECT_EQ(value_of(plans[0], "CUDA_VISIBLE_DEVICES"), "(not given)");
  EXPECT_EQ(value_of(plans[0], "TF_FORCE_GPU_ALLOW_GROWTH"), "(not given)");
}

TEST(WorkerEnvironment, lets_a_worker_without_a_gpu_start_with_backend_cuda) {
  auto machine = machine_with(1);
  EXPECT_EQ(value_of(plan_workers({.devices = "cpu"}, machine)[0], "DROVER_BACKEND"), "(not given)");
  machine.set["DROVER_BACKEND"] = "cuda";
  EXPECT_EQ(value_of(plan_workers({.devices = "cpu"}, machine)[0], "DROVER_BACKEND"), "host");
  EXPECT_EQ(value_of(plan_workers({}, machine)[0], "DROVER_BACKEND"), "(not given)");
}

TEST(WorkerEnvironment, removes_a_cpu_list_that_would_bind_all_workers_alike) {
  auto machine = machine_with(2);
  EXPECT_TRUE(plan_workers({}, machine)[0].unset.empty());
  machine.set["GOMP_CPU_AFFINITY"] = "0-3";
  EXPECT_EQ(plan_workers({}, machine)[0].unset, std::vector<std::string>{"GOMP_CPU_AFFINITY"});
  EXPECT_TRUE(plan_workers({.affinity = false}, machine)[0].unset.empty());
}

// ---- end to end, against the stand-in driver

class StandInGpus : public testing::Test {
 protected:
  static void run(const char* body) {
    PeerGroup peer(body, {.mode = PeerMode::processes, .size = 1});
    peer.start();
    peer.expect_success();
  }

 private:
  ScopedEnvironment cuda_{"DROVER_LIBCUDA", DROVER_FAKE_LIBCUDA};
  ScopedEnvironment nvml_{"DROVER_LIBNVML", DROVER_FAKE_LIBNVML};
  ScopedEnvironment backend_{"DROVER_BACKEND", "cuda"};
  ScopedEnvironment count_{"FAKE_GPU_COUNT", "3"};
  ScopedEnvironment crash_{"FAKE_CUINIT_CRASH", "1"};  // planning initialises nothing
};

constexpr const char* kSecondGpu = "GPU-fafafafa-fafa-fafa-fafa-fafafafafa02";

}  // namespace

DROVER_PEER_BODY(plans_on_gpus) {
  static_cast<void>(peer);
  const auto plans = plan_workers({}, look_at_machine());
  ASSERT_EQ(plans.size(), 3U);
  EXPECT_EQ(value_of(plans[1], "CUDA_VISIBLE_DEVICES"), kSecondGpu);
  expect_refused(Errc::device_memory, {.memory_budget = 13 * kGiB}, look_at_machine(),
                 {"12.0 GiB of 16.0 GiB are free"});
}

DROVER_PEER_BODY(plans_on_filtered_gpus) {
  static_cast<void>(peer);
  const auto plans = plan_workers({}, look_at_machine());
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(value_of(plans[0], "CUDA_VISIBLE_DEVICES"), kSecondGpu) << "by its UUID, however it was named";
  expect_refused(Errc::not_found, {.devices = "1"}, look_at_machine(), {"CUDA_VISIBLE_DEVICES=1 hides all others"});
}

DROVER_PEER_BODY(placed_worker) {
  static_cast<void>(peer);
  const auto& seen = select_backend().backend.devices();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(to_string(seen[0].uuid), kSecondGpu);
}

namespace {

TEST_F(StandInGpus, are_planned_without_initialising_cuda) {
  const ScopedEnvironment visible("CUDA_VISIBLE_DEVICES", std::nullopt);
  run("plans_on_gpus");
}

TEST_F(StandInGpus, hidden_by_the_user_stay_hidden) {
  const ScopedEnvironment visible("CUDA_VISIBLE_DEVICES", "1");
  run("plans_on_filtered_gpus");
}

TEST_F(StandInGpus, are_visible_to_the_worker_as_planned) {
  const ScopedEnvironment visible("CUDA_VISIBLE_DEVICES", kSecondGpu);
  run("placed_worker");
}

}  // namespace
}  // namespace drover::test
