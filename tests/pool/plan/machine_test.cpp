// CPUs, cores and nodes, read from a sysfs made by the test, and from this machine.
#include "pool/plan/machine.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drover/device/backend.hpp"
#include "drover/pool/worker_plan.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/peer_group.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace drover::test {
namespace {

using Cpus = std::vector<int>;
using Groups = std::vector<Cpus>;

// A sysfs with the files of a test.
class FakeSysfs {
 public:
  void write(const std::string& path, const std::string& text) const {
    const auto whole = folder_.path() / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text << '\n';
  }
  void core(const Cpus& siblings, const std::string& list) const {
    for (const int cpu : siblings) {
      write("devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", list);
    }
  }
  [[nodiscard]] std::string path() const { return folder_.path().string(); }

 private:
  TemporaryFolder folder_;
};

TEST(CpuList, is_parsed_as_the_kernel_writes_it) {
  EXPECT_EQ(pool::parse_cpu_list("0-3,8,10-11\n"), (Cpus{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(pool::parse_cpu_list("5"), Cpus{5});
  EXPECT_EQ(pool::parse_cpu_list("8-9,0-1,1"), (Cpus{0, 1, 8, 9})) << "sorted, each once";
  EXPECT_EQ(pool::parse_cpu_list("\n"), Cpus{});
  EXPECT_EQ(pool::parse_cpu_list(""), Cpus{});
}

TEST(CpuList, of_any_other_form_is_empty) {
  for (const char* const text :
       {"a", "0-", "-3", "3-1", "0,,1", "0,", "0 1", "0-3x", "0-99999999", "70000", "99999999999"}) {
    EXPECT_EQ(pool::parse_cpu_list(text), Cpus{}) << text;
  }
}

TEST(AllowedCpus, are_those_of_the_calling_thread) {
  const auto before = pool::allowed_cpus();
  ASSERT_FALSE(before.empty());
  EXPECT_TRUE(std::ranges::is_sorted(before));
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(before.back()), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(pool::allowed_cpus(), Cpus{before.back()});
  }).join();
}

TEST(AllowedCpus, are_read_with_a_larger_set_if_the_kernel_needs_one) {
  const auto expected = pool::allowed_cpus();
  const FaultSeam fail("sched_getaffinity", EINVAL, {.times = 1});
  EXPECT_EQ(pool::allowed_cpus(), expected);
}

TEST(AllowedCpus, that_cannot_be_read_are_an_error) {
  const FaultSeam fail("sched_getaffinity", EPERM);
  expect_error(Errc::permission_denied, [] { static_cast<void>(pool::allowed_cpus()); }, {"sched_getaffinity"});
}

TEST(Cores, keep_hyperthreads_together) {
  const FakeSysfs sysfs;
  sysfs.core({0, 4}, "0,4");
  sysfs.core({1, 5}, "1,5");
  EXPECT_EQ(pool::group_by_core({0, 1, 4, 5}, sysfs.path()), (Groups{{0, 4}, {1, 5}}));
  EXPECT_EQ(pool::group_by_core({1, 4, 5}, sysfs.path()), (Groups{{1, 5}, {4}})) << "only CPUs that may be used";
}

TEST(Cores, of_unknown_topology_are_single) {
  const FakeSysfs sysfs;
  sysfs.core({1}, "7-8");  // does not name the CPU itself
  sysfs.core({2}, "words");
  EXPECT_EQ(pool::group_by_core({0, 1, 2}, sysfs.path()), (Groups{{0}, {1}, {2}}));
}

TEST(Cores, that_claim_the_same_cpu_do_not_share_it) {
  const FakeSysfs sysfs;
  sysfs.core({0}, "0-1");
  sysfs.core({2}, "1-2");
  EXPECT_EQ(pool::group_by_core({0, 1, 2}, sysfs.path()), (Groups{{0, 1}, {2}}));
}

TEST(Nodes, have_the_usable_cpus_in_the_order_of_their_numbers) {
  const FakeSysfs sysfs;
  sysfs.write("devices/system/node/node10/cpulist", "6-7");
  sysfs.write("devices/system/node/node2/cpulist", "0-3");
  sysfs.write("devices/system/node/node3/cpulist", "4-5");
  sysfs.write("devices/system/node/has_cpu", "0-1");
  sysfs.write("devices/system/node/nodes/cpulist", "0-7");
  EXPECT_EQ(pool::group_by_node({1, 2, 6, 7, 8}, sysfs.path()), (Groups{{1, 2}, {6, 7}}));
}

TEST(Nodes, are_one_if_the_kernel_reports_none) {
  const FakeSysfs sysfs;
  EXPECT_EQ(pool::group_by_node({0, 1}, sysfs.path()), (Groups{{0, 1}}));
}

TEST(NearCpus, are_those_beside_the_pci_device) {
  const FakeSysfs sysfs;
  sysfs.write("bus/pci/devices/0000:1b:00.0/local_cpulist", "8-15");
  EXPECT_EQ(pool::cpus_near("0000:1b:00.0", sysfs.path()), pool::parse_cpu_list("8-15"));
  EXPECT_EQ(pool::cpus_near("0000:1c:00.0", sysfs.path()), Cpus{});
  EXPECT_EQ(pool::cpus_near("", sysfs.path()), Cpus{}) << "an emulated device has no place";
}

// ---- CPUs of workers

// Two nodes of four cores with two hyperthreads each: 0-3 and 8-11, 4-7 and 12-15. Devices 0 and 1 are near the first
// node, 2 and 3 near the second.
class TwoNodes : public testing::Test {
 protected:
  TwoNodes() {
    sysfs_.write("devices/system/node/node0/cpulist", "0-3,8-11");
    sysfs_.write("devices/system/node/node1/cpulist", "4-7,12-15");
    for (int cpu = 0; cpu < 8; ++cpu) sysfs_.core({cpu, cpu + 8}, fmt::format("{},{}", cpu, cpu + 8));
    for (int gpu = 0; gpu < 4; ++gpu) sysfs_.write(near(gpu), gpu < 2 ? "0-3,8-11" : "4-7,12-15");
  }

  static std::string pci(int gpu) { return fmt::format("0000:0{}:00.0", gpu); }
  static std::string near(int gpu) { return "bus/pci/devices/" + pci(gpu) + "/local_cpulist"; }

  [[nodiscard]] Machine machine(int gpus, const std::string& usable = "0-15") const {
    Machine made;
    made.cpus = pool::parse_cpu_list(usable);
    made.cores = pool::group_by_core(made.cpus, sysfs_.path());
    made.nodes = pool::group_by_node(made.cpus, sysfs_.path());
    for (int gpu = 0; gpu < gpus; ++gpu) {
      MachineDevice device;
      device.info.backend = BackendKind::cuda;
      device.info.index = gpu;
      device.info.uuid.bytes[0] = static_cast<std::uint8_t>(gpu + 1);
      device.near_cpus = pool::cpus_near(pci(gpu), sysfs_.path());
      made.devices.push_back(device);
    }
    return made;
  }

  static void expect_share(const WorkerPlan& plan, const std::string& cpus, int threads) {
    EXPECT_EQ(plan.placement.cpus, pool::parse_cpu_list(cpus)) << plan.name;
    EXPECT_EQ(plan.threads, threads) << plan.name;
  }

  FakeSysfs sysfs_;
};

TEST_F(TwoNodes, a_worker_alone_near_a_node_gets_all_of_it) {
  const auto plans = plan_workers({.devices = "0,2"}, machine(4));
  expect_share(plans[0], "0-3,8-11", 4);
  expect_share(plans[1], "4-7,12-15", 4);
}

TEST_F(TwoNodes, a_single_worker_stays_near_its_device) {
  expect_share(plan_workers({.devices = "3"}, machine(4))[0], "4-7,12-15", 4);
}

TEST_F(TwoNodes, workers_of_one_node_get_separate_whole_cores) {
  const auto plans = plan_workers({}, machine(4));
  expect_share(plans[0], "0-1,8-9", 2);
  expect_share(plans[1], "2-3,10-11", 2);
  expect_share(plans[2], "4-5,12-13", 2);
  expect_share(plans[3], "6-7,14-15", 2);
}

TEST_F(TwoNodes, parts_of_less_than_two_cores_are_not_made) {
  const auto plans = plan_workers({.workers = 3, .devices = "0"}, machine(1));
  for (const auto& plan : plans) expect_share(plan, "0-3,8-11", 1);
}

TEST_F(TwoNodes, requested_threads_have_enough_cpus) {
  const auto fitting = plan_workers({.devices = "0,1", .threads = 4}, machine(2));
  expect_share(fitting[0], "0-1,8-9", 4);
  const auto wider = plan_workers({.devices = "0,1", .threads = 5}, machine(2));
  expect_share(wider[0], "0-3,8-11", 5);
  expect_share(wider[1], "0-3,8-11", 5);
  expect_share(plan_workers({.devices = "0", .threads = 9}, machine(1))[0], "", 9);
}

TEST_F(TwoNodes, workers_without_a_device_go_to_the_emptiest_node) {
  const auto mixed = plan_workers({.devices = "0,1,cpu,cpu"}, machine(2));
  expect_share(mixed[0], "0-1,8-9", 2);
  expect_share(mixed[2], "4-5,12-13", 2);
  expect_share(mixed[3], "6-7,14-15", 2);
  const auto two = plan_workers({.workers = 2, .devices = "none"}, machine(2));
  expect_share(two[0], "0-3,8-11", 4);
  expect_share(two[1], "4-7,12-15", 4);
  expect_share(plan_workers({.workers = 1, .devices = "none"}, machine(2))[0], "", 8);
}

TEST_F(TwoNodes, every_worker_has_a_cpu_and_none_a_forbidden_one) {
  for (const char* const usable : {"0-15", "0-2,9", "4-7", "3", "0,4"}) {
    for (std::size_t workers = 1; workers <= 20; ++workers) {
      const auto made = machine(4, usable);
      for (const auto& plan : plan_workers({.workers = workers, .devices = "all,cpu"}, made)) {
        SCOPED_TRACE(fmt::format("{} of {} on {}", plan.name, workers, usable));
        EXPECT_GE(plan.threads, 1);
        const auto& cpus = plan.placement.cpus.empty() ? made.cpus : plan.placement.cpus;
        EXPECT_FALSE(cpus.empty());
        EXPECT_TRUE(std::ranges::includes(made.cpus, cpus));
        EXPECT_GE(cpus.size(), static_cast<std::size_t>(plan.threads));
      }
    }
  }
}

TEST_F(TwoNodes, a_device_on_a_forbidden_node_has_no_near_cpus) {
  expect_share(plan_workers({.devices = "0"}, machine(1, "4-7"))[0], "", 4);
}

TEST_F(TwoNodes, affinity_can_be_disabled) {
  for (const auto& plan : plan_workers({.affinity = false}, machine(4))) expect_share(plan, "", 2);
}

TEST(OneNode, with_few_cores_binds_no_worker) {
  Machine machine;
  machine.cpus = {0, 1};  // cores and nodes may be empty
  const auto plans = plan_workers({.workers = 2, .devices = "none"}, machine);
  for (const auto& plan : plans) {
    EXPECT_TRUE(plan.placement.cpus.empty());
    EXPECT_EQ(plan.threads, 1);
  }
  EXPECT_TRUE(plan_workers({.workers = 2, .devices = "none", .threads = 8}, machine)[0].placement.cpus.empty());
}

TEST(OneNode, with_many_cores_is_split_evenly_between_emulated_devices) {
  Machine machine;
  machine.cpus = pool::parse_cpu_list("0-9");
  for (int index = 0; index < 3; ++index) {
    MachineDevice device;
    device.info.backend = BackendKind::host;
    device.info.index = index;
    machine.devices.push_back(device);
  }
  const auto plans = plan_workers({}, machine);
  EXPECT_EQ(plans[0].placement.cpus, pool::parse_cpu_list("0-2"));
  EXPECT_EQ(plans[1].placement.cpus, pool::parse_cpu_list("3-5"));
  EXPECT_EQ(plans[2].placement.cpus, pool::parse_cpu_list("6-9"));
}

TEST(DeviceUsers, have_the_names_of_their_programs_where_visible) {
  const auto users = pool::users_of({{.pid = ::getpid(), .bytes = 1024}, {.pid = 5'000'001, .bytes = 0}});
  ASSERT_EQ(users.size(), 2U);
  EXPECT_EQ(users[0].pid, ::getpid());
  EXPECT_FALSE(users[0].name.empty());
  EXPECT_EQ(users[0].bytes, 1024U);
  EXPECT_EQ(users[1].pid, 5'000'001);
  EXPECT_EQ(users[1].name, "") << "no process has such a number";
}

TEST(LookAtMachine, sees_devices_cpus_and_settings) {
  const ScopedEnvironment threads("OMP_NUM_THREADS", "3");
  const ScopedEnvironment order("MKL_NUM_THREADS", std::nullopt);
  const auto machine = look_at_machine();
  const auto& backend = select_backend().backend;
  ASSERT_EQ(machine.devices.size(), backend.devices().size());
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    EXPECT_EQ(machine.devices[i].info.uuid, backend.devices()[i].uuid);
    ASSERT_TRUE(machine.devices[i].memory);
    EXPECT_LE(machine.devices[i].memory->free, machine.devices[i].memory->total);
  }
  EXPECT_EQ(machine.cpus, pool::allowed_cpus());
  EXPECT_FALSE(machine.cores.empty());
  EXPECT_FALSE(machine.nodes.empty());
  EXPECT_EQ(machine.set.at("OMP_NUM_THREADS"), "3");
  EXPECT_FALSE(machine.set.contains("MKL_NUM_THREADS"));
  EXPECT_EQ(machine.process, ::getpid());
}

TEST(LookAtMachine, reads_the_given_sysfs) {
  const FakeSysfs sysfs;
  const auto cpus = pool::allowed_cpus();
  sysfs.write("devices/system/node/node0/cpulist", std::to_string(cpus.front()));
  EXPECT_EQ(look_at_machine(sysfs.path()).nodes, (Groups{{cpus.front()}}));
}

TEST(LookAtMachine, returns_a_machine_that_can_be_planned) {
  const auto machine = look_at_machine();
  const auto plans = plan_workers({}, machine);
  ASSERT_EQ(plans.size(), machine.devices.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    ASSERT_TRUE(plans[i].device);
    EXPECT_EQ(plans[i].device->info.uuid, machine.devices[i].info.uuid);
    EXPECT_GE(plans[i].threads, 1);
  }
}

}  // namespace

DROVER_PEER_BODY(worker_on_an_emulated_device) {
  const auto& seen = backend_of(BackendKind::host).devices();
  EXPECT_EQ(std::to_string(seen.size()), peer.parameter("count"));
  EXPECT_EQ(to_string(seen.at(1).uuid), peer.parameter("uuid"));
}

namespace {

TEST(LookAtMachine, emulated_devices_have_the_same_names_in_the_worker) {
  const auto machine = look_at_machine();
  if (machine.devices.front().info.backend != BackendKind::host) GTEST_SKIP() << "GPUs are selected here";
  const auto plan = plan_workers({.devices = "host:1"}, machine).front();
  ASSERT_EQ(plan.device->worker_index, 1);
  std::vector<std::unique_ptr<ScopedEnvironment>> given;
  for (const auto& [name, value] : plan.environment)
    given.push_back(std::make_unique<ScopedEnvironment>(name, value));
  PeerGroup peer("worker_on_an_emulated_device", {.mode = PeerMode::processes, .size = 1},
                 {{"count", std::to_string(machine.devices.size())}, {"uuid", to_string(plan.device->info.uuid)}});
  peer.start();
  peer.expect_success();
}

}  // namespace
}  // namespace drover::test
