// Collecting facts from made-up file trees, and from the machine that runs the test.
#include <sys/resource.h>

#include <cerrno>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/observe/doctor.hpp"
#include "observe/sample_tree.hpp"
#include "support/fault_seam.hpp"
#include "support/scoped_environment.hpp"

namespace drover::observe {
namespace {

using test::FaultSeam;
using test::SampleTree;
using test::ScopedEnvironment;

Facts facts_of(const SampleTree& tree) { return collect_facts({}, tree.root()); }

void put_pci(SampleTree& tree, const std::string& address, const char* vendor, const char* device_class) {
  const auto folder = "sys/bus/pci/devices/" + address;
  tree.put(folder + "/vendor", std::string(vendor) + "\n");
  tree.put(folder + "/class", std::string(device_class) + "\n");
}

TEST(CollectFacts, empty_tree_gives_empty_facts) {
  const SampleTree tree;
  const auto facts = facts_of(tree);
  EXPECT_EQ(facts.kernel_module, "");
  EXPECT_TRUE(facts.pci_gpus.empty());
  EXPECT_TRUE(facts.device_nodes.empty());
  EXPECT_FALSE(facts.is_wsl);
  EXPECT_FALSE(facts.is_container);
  EXPECT_FALSE(facts.shared_memory.has_value());
  EXPECT_EQ(facts.memory_total, 0U);
  EXPECT_TRUE(facts.memory_limits.empty());
  EXPECT_FALSE(facts.overcommit_memory.has_value());
  EXPECT_FALSE(facts.mps.has_control);
}

TEST(CollectFacts, report_of_the_driver_is_passed_through) {
  const SampleTree tree;
  DriverProbe probe{ProbeOutcome::died, "killed", {}};
  probe.report.driver_version = "580.1";
  const auto facts = collect_facts(probe, tree.root());
  EXPECT_EQ(facts.probe.outcome, ProbeOutcome::died);
  EXPECT_EQ(facts.probe.detail, "killed");
  EXPECT_EQ(facts.probe.report.driver_version, "580.1");
}

TEST(CollectFacts, version_of_the_kernel_module_is_found_in_both_formats) {
  SampleTree closed;
  closed.put("proc/driver/nvidia/version",
             "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
             "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n");
  EXPECT_EQ(facts_of(closed).kernel_module, "535.104.05");
  SampleTree open;
  open.put("proc/driver/nvidia/version",
           "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (root@build)\n");
  EXPECT_EQ(facts_of(open).kernel_module, "580.159.04");
}

TEST(CollectFacts, gpus_are_distinguished_from_other_functions_on_the_bus) {
  SampleTree tree;
  put_pci(tree, "0000:1b:00.0", "0x10de", "0x030200");
  put_pci(tree, "0000:0a:00.0", "0x10de", "0x030000");
  put_pci(tree, "0000:1b:00.1", "0x10de", "0x040300");  // sound
  put_pci(tree, "0000:00:02.0", "0x8086", "0x030000");  // another vendor
  tree.link("sys/bus/pci/devices/0000:1b:00.0/driver", "../../../../bus/pci/drivers/nvidia");
  const auto gpus = facts_of(tree).pci_gpus;
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].address, "0000:0a:00.0");
  EXPECT_EQ(gpus[0].driver, "");
  EXPECT_EQ(gpus[1].address, "0000:1b:00.0");
  EXPECT_EQ(gpus[1].driver, "nvidia");
}

TEST(CollectFacts, device_nodes_of_gpus_are_distinguished_from_others) {
  SampleTree tree;
  for (const auto* name :
       {"nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidia-caps", "null"}) {
    tree.put(std::string("dev/") + name);
  }
  const auto nodes = facts_of(tree).device_nodes;
  ASSERT_EQ(nodes.size(), 4U);
  EXPECT_EQ(nodes[0].path, "/dev/nvidia-uvm");
  EXPECT_EQ(nodes[1].path, "/dev/nvidia0");
  EXPECT_EQ(nodes[2].path, "/dev/nvidia12");
  EXPECT_EQ(nodes[3].path, "/dev/nvidiactl");
  for (const auto& node : nodes) EXPECT_TRUE(node.is_accessible) << node.path;
}

TEST(CollectFacts, node_that_this_user_may_not_open_is_marked) {
  SampleTree tree;
  tree.put("dev/nvidia0");
  const FaultSeam refuse("access", EACCES);
  const auto nodes = facts_of(tree).device_nodes;
  ASSERT_EQ(nodes.size(), 1U);
  EXPECT_FALSE(nodes[0].is_accessible);
}

TEST(CollectFacts, windows_subsystem_is_recognised_by_its_node) {
  SampleTree tree;
  tree.put("dev/dxg");
  EXPECT_TRUE(facts_of(tree).is_wsl);
}

TEST(CollectFacts, container_is_recognised_by_each_of_its_traces) {
  SampleTree docker;
  docker.put(".dockerenv");
  EXPECT_TRUE(facts_of(docker).is_container);
  SampleTree podman;
  podman.put("run/.containerenv");
  EXPECT_TRUE(facts_of(podman).is_container);
  SampleTree kubernetes;
  kubernetes.put("proc/1/cgroup", "11:memory:/kubepods/burstable/pod1234/5678\n");
  EXPECT_TRUE(facts_of(kubernetes).is_container);
  SampleTree plain;
  plain.put("proc/1/cgroup", "0::/init.scope\n");
  EXPECT_FALSE(facts_of(plain).is_container);
}

TEST(CollectFacts, empty_variable_is_distinguished_from_an_unset_one) {
  const SampleTree tree;
  const ScopedEnvironment hidden("CUDA_VISIBLE_DEVICES", "");
  const ScopedEnvironment order("CUDA_DEVICE_ORDER", std::nullopt);
  const ScopedEnvironment backend("DROVER_BACKEND", "host");
  const ScopedEnvironment visible("NVIDIA_VISIBLE_DEVICES", "all");
  const ScopedEnvironment capabilities("NVIDIA_DRIVER_CAPABILITIES", "compute");
  const auto environment = facts_of(tree).environment;
  EXPECT_EQ(environment.cuda_visible_devices, "");
  EXPECT_EQ(environment.cuda_device_order, std::nullopt);
  EXPECT_EQ(environment.backend, "host");
  EXPECT_EQ(environment.nvidia_visible_devices, "all");
  EXPECT_EQ(environment.nvidia_driver_capabilities, "compute");
}

TEST(CollectFacts, mps_daemon_is_alive_if_its_pid_file_names_one) {
  const ScopedEnvironment unset("CUDA_MPS_PIPE_DIRECTORY", std::nullopt);
  SampleTree tree;
  tree.put("tmp/nvidia-mps/control");
  tree.put("tmp/nvidia-mps/nvidia-cuda-mps-control.pid", "4242\n");
  EXPECT_EQ(facts_of(tree).mps.pipe_directory, "/tmp/nvidia-mps");
  EXPECT_TRUE(facts_of(tree).mps.has_control);
  EXPECT_FALSE(facts_of(tree).mps.is_daemon_alive);
  tree.put("proc/4242/cmdline", std::string("/usr/bin/bash\0-l\0", 17));  // the pid was reused
  EXPECT_FALSE(facts_of(tree).mps.is_daemon_alive);
  tree.put("proc/4242/cmdline", std::string("/usr/bin/nvidia-cuda-mps-control\0-d\0", 36));
  EXPECT_TRUE(facts_of(tree).mps.is_daemon_alive);
}

TEST(CollectFacts, mps_daemon_without_a_pid_file_is_searched_for) {
  const ScopedEnvironment set("CUDA_MPS_PIPE_DIRECTORY", "/run/mps");
  SampleTree tree;
  tree.put("proc/17/cmdline", std::string("nvidia-cuda-mps-control\0-d\0", 27));
  EXPECT_FALSE(facts_of(tree).mps.is_daemon_alive) << "the daemon of another directory does not count";
  tree.put("run/mps/control");
  EXPECT_EQ(facts_of(tree).mps.pipe_directory, "/run/mps");
  EXPECT_TRUE(facts_of(tree).mps.is_daemon_alive);
}

TEST(CollectFacts, mps_server_is_not_mistaken_for_its_daemon) {
  const ScopedEnvironment unset("CUDA_MPS_PIPE_DIRECTORY", std::nullopt);
  SampleTree tree;
  tree.put("tmp/nvidia-mps/control");
  tree.put("proc/17/cmdline", std::string("nvidia-cuda-mps-server\0", 23));
  EXPECT_FALSE(facts_of(tree).mps.is_daemon_alive);
}

TEST(CollectFacts, memory_of_the_machine_and_overcommit_are_read) {
  SampleTree tree;
  tree.put("proc/meminfo", "MemTotal:       16384 kB\nMemFree:         1024 kB\n");
  tree.put("proc/sys/vm/overcommit_memory", "2\n");
  EXPECT_EQ(facts_of(tree).memory_total, 16 * kMiB);
  EXPECT_EQ(facts_of(tree).overcommit_memory, 2);
}

TEST(CollectFacts, file_system_of_shared_memory_is_measured) {
  SampleTree tree;
  tree.make_folder("dev/shm");
  const auto space = facts_of(tree).shared_memory;
  ASSERT_TRUE(space.has_value());
  EXPECT_GT(space->total, 0U);
  EXPECT_LE(space->free, space->total);
  const FaultSeam fail("statvfs", EIO);
  EXPECT_FALSE(facts_of(tree).shared_memory.has_value());
}

TEST(CollectFacts, limit_of_open_files_is_that_of_this_process) {
  SampleTree tree;
  for (const auto* name : {"0", "1", "2"}) tree.put(std::string("proc/self/fd/") + name);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const auto files = facts_of(tree).open_files;
  EXPECT_EQ(files.soft_limit, limit.rlim_cur);
  EXPECT_EQ(files.hard_limit, limit.rlim_max);
  EXPECT_EQ(files.in_use, 3U);
}

TEST(CollectFacts, directory_in_place_of_a_file_reads_as_empty) {
  SampleTree tree;
  tree.make_folder("proc/driver/nvidia/version");
  tree.make_folder("proc/meminfo");
  EXPECT_EQ(facts_of(tree).kernel_module, "");
  EXPECT_EQ(facts_of(tree).memory_total, 0U);
}

TEST(CollectFacts, machine_of_the_test_has_memory_and_open_files) {
  const auto facts = collect_facts({});
  EXPECT_GT(facts.memory_total, 0U);
  EXPECT_GT(facts.open_files.in_use, 0U);
  EXPECT_TRUE(facts.overcommit_memory.has_value());
}

}  // namespace
}  // namespace drover::observe
