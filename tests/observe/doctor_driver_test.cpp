// Findings about hardware, kernel module, container and driver libraries.
#include <gtest/gtest.h>

#include "observe/sample_facts.hpp"

namespace drover::observe {
namespace {

using namespace drover::test;

void put_in_container(Facts& facts) {
  facts.is_container = true;
  facts.device_nodes.clear();
  facts.kernel_module.clear();
}

TEST(Doctor, gpus_are_counted_wherever_they_are_visible) {
  expect_findings(
      machine_with_gpus,
      {{"two on the bus", [](Facts&) {}, "gpu", Severity::ok, "2 NVIDIA GPUs on the PCI bus (0000:10:00.0, ", ""},
       {"none on the bus, but known to the driver", [](Facts& f) { f.pci_gpus.clear(); }, "gpu", Severity::ok,
        "2 NVIDIA GPUs known to the driver", ""},
       {"WSL", [](Facts& f) { f.is_wsl = true; }, "gpu", Severity::note, "Windows (WSL)", "native Linux"}});
  expect_findings(machine_without_gpu, {{"all reserved for virtual machines",
                                         [](Facts& f) { f.pci_gpus = {{"0000:10:00.0", "vfio-pci"}}; }, "gpu",
                                         Severity::note, "0000:10:00.0", "vfio-pci"}});
}

TEST(Doctor, gpu_without_kernel_module_is_a_failure) {
  expect_findings(
      machine_without_driver,
      {{"no driver at all", [](Facts&) {}, "kernel-module", Severity::failure, "not loaded", "modprobe nvidia"},
       {"nouveau", [](Facts& f) { f.pci_gpus[0].driver = "nouveau"; }, "kernel-module", Severity::failure,
        "0000:10:00.0 is driven by nouveau", "install NVIDIA's driver"}});
  expect_findings(machine_with_gpus,
                  {{"module that leaves one GPU alone", [](Facts& f) { f.pci_gpus[1].driver = ""; }, "kernel-module",
                    Severity::warning, "does not drive 0000:11:00.0", "dmesg"},
                   {"loaded", [](Facts&) {}, "kernel-module", Severity::ok, "580.159.04", ""}});
}

TEST(Doctor, module_that_cannot_be_seen_is_not_a_failure_if_cuda_starts) {
  auto facts = machine_with_gpus();
  facts.kernel_module.clear();
  expect_silence(facts, "kernel-module");
  EXPECT_EQ(worst(diagnose(facts)), Severity::ok);
}

TEST(Doctor, device_nodes_must_exist_and_be_accessible) {
  expect_findings(machine_with_gpus,
                  {{"no access, CUDA fails",
                    [](Facts& f) {
                      f.device_nodes[1].is_accessible = false;
                      fail_cuda(f, 304);
                    },
                    "device-nodes", Severity::failure, "/dev/nvidia0", "ls -l /dev/nvidia*"},
                   {"no access to one, CUDA works", [](Facts& f) { f.device_nodes[1].is_accessible = false; },
                    "device-nodes", Severity::warning, "/dev/nvidia0", "group"},
                   {"no GPU node",
                    [](Facts& f) {
                      f.device_nodes = {{"/dev/nvidiactl", true}};
                      fail_cuda(f, 999);
                    },
                    "device-nodes", Severity::failure, "/dev/nvidia0 is missing", "nvidia-modprobe"},
                   {"no node for unified memory",
                    [](Facts& f) {
                      f.device_nodes.erase(f.device_nodes.begin());
                      fail_cuda(f, 999);
                    },
                    "device-nodes", Severity::failure, "/dev/nvidia-uvm is missing", "nvidia-modprobe -u"},
                   {"all present, another failure", [](Facts& f) { fail_cuda(f, 802); }, "device-nodes", Severity::ok,
                    "may use", ""},
                   {"all present", [](Facts&) {}, "device-nodes", Severity::ok, "may use", ""}});
}

TEST(Doctor, container_without_access_to_the_host_gpu_gets_a_remedy) {
  expect_findings(machine_without_driver,
                  {{"GPU on the host's bus", put_in_container, "container-gpu", Severity::failure, "no device nodes",
                    "--gpus all"},
                   {"nodes, but no library",
                    [](Facts& f) {
                      put_in_container(f);
                      f.device_nodes = {{"/dev/nvidia0", true}};
                    },
                    "container-gpu", Severity::failure, "libcuda.so.1", "nvidia-container-toolkit"},
                   {"kept out on purpose",
                    [](Facts& f) {
                      put_in_container(f);
                      f.environment.nvidia_visible_devices = "void";
                    },
                    "container-gpu", Severity::note, "NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=all"}});
  expect_findings(machine_without_gpu,
                  {{"requested, but no GPU is visible",
                    [](Facts& f) {
                      put_in_container(f);
                      f.environment.nvidia_visible_devices = "all";
                    },
                    "container-gpu", Severity::warning, "NVIDIA_VISIBLE_DEVICES=all", "--gpus all"}});
}

TEST(Doctor, blocked_container_is_reported_once) {
  auto facts = machine_without_driver();
  put_in_container(facts);
  for (const auto* id : {"kernel-module", "device-nodes", "driver-library", "driver-init"}) expect_silence(facts, id);
}

TEST(Doctor, container_with_working_gpus_is_not_blamed) {
  auto facts = machine_with_gpus();
  put_in_container(facts);
  expect_silence(facts, "container-gpu");
  EXPECT_EQ(worst(diagnose(facts)), Severity::ok);
}

TEST(Doctor, driver_that_hangs_or_crashes_is_a_failure) {
  expect_findings(machine_with_gpus,
                  {{"hang",
                    [](Facts& f) {
                      f.probe.outcome = ProbeOutcome::timed_out;
                      f.probe.detail = "within 30 s";
                    },
                    "driver-answer", Severity::failure, "did not answer within 30 s", "nvidia-smi --gpu-reset"},
                   {"crash",
                    [](Facts& f) {
                      f.probe.outcome = ProbeOutcome::died;
                      f.probe.detail = "killed by SIGSEGV";
                    },
                    "driver-answer", Severity::failure, "killed by SIGSEGV", "reinstall NVIDIA's driver"}});
  expect_silence(machine_with_gpus(), "driver-answer");
}

TEST(Doctor, missing_library_is_a_failure_only_where_there_is_a_gpu) {
  expect_findings(
      machine_without_driver,
      {{"no driver", [](Facts&) {}, "driver-library", Severity::failure, "cannot open", "install NVIDIA's driver"},
       {"module without libraries", [](Facts& f) { f.kernel_module = "580.159.04"; }, "driver-library",
        Severity::failure, "cannot open", "libcuda1"},
       {"container with nodes of a driver that shows its GPUs",
        [](Facts& f) {
          f.is_container = true;
          f.probe.report.present = {gpu(0)};
        },
        "driver-library", Severity::failure, "cannot open", "NVIDIA_DRIVER_CAPABILITIES"}});
  expect_findings(machine_without_gpu,
                  {{"no GPU", [](Facts&) {}, "driver-library", Severity::note, "cannot open", ""}});
  expect_findings(machine_with_gpus,
                  {{"loaded", [](Facts&) {}, "driver-library", Severity::ok, "supports CUDA 13.0", ""},
                   {"too old to report its version", [](Facts& f) { f.probe.report.cuda_version = 0; },
                    "driver-library", Severity::ok, "libcuda.so.1 is loaded", ""}});
}

TEST(Doctor, parts_of_the_driver_must_have_one_version) {
  expect_findings(
      machine_with_gpus,
      {{"NVML sees the mismatch",
        [](Facts& f) {
          f.probe.report.nvml_init = ForeignResult{18, "Driver/library version mismatch"};
          f.probe.report.driver_version.clear();
        },
        "driver-versions", Severity::failure, "the kernel module is 580.159.04, the libraries are of another",
        "reboot"},
       {"CUDA sees it, NVML cannot say",
        [](Facts& f) {
          fail_cuda(f, 803);
          f.probe.report.driver_version.clear();
        },
        "driver-versions", Severity::failure, "mismatch", "rmmod"},
       {"another libcuda than the driver's comes first", [](Facts& f) { fail_cuda(f, 803); }, "driver-versions",
        Severity::failure, "does not match the driver, which is 580.159.04", "compat directory"},
       {"the versions differ", [](Facts& f) { f.kernel_module = "570.1"; }, "driver-versions", Severity::failure,
        "the kernel module is 570.1, the libraries are 580.159.04", "reboot"},
       {"module unseen",
        [](Facts& f) {
          f.kernel_module.clear();
          fail_cuda(f, 803);
        },
        "driver-versions", Severity::failure, "differ", "reboot"},
       {"compatibility library", [](Facts& f) { fail_cuda(f, 804); }, "driver-versions", Severity::failure,
        "forward-compatibility", "LD_LIBRARY_PATH"},
       {"equal", [](Facts&) {}, "driver-versions", Severity::ok, "both 580.159.04", ""}});
}

TEST(Doctor, mismatch_is_not_reported_again_as_a_failed_start) {
  for (const int code : {803, 804}) {
    auto facts = machine_with_gpus();
    fail_cuda(facts, code);
    facts.probe.report.nvml_init = ForeignResult{18, "Driver/library version mismatch"};
    expect_silence(facts, "driver-init");
    expect_silence(facts, "nvml");
  }
}

TEST(Doctor, driver_without_required_entry_points_is_too_old) {
  expect_findings(machine_with_gpus,
                  {{"one", [](Facts& f) { f.probe.report.missing_symbols = {"cuMemMap"}; }, "driver-symbols",
                    Severity::failure, "it lacks cuMemMap", "525"},
                   {"even the first, as in the stub for linking",
                    [](Facts& f) { f.probe.report.missing_symbols = {"cuInit", "cuMemMap"}; }, "driver-symbols",
                    Severity::failure, "stub", "lib64/stubs"},
                   {"many", [](Facts& f) { f.probe.report.missing_symbols = {"a", "b", "c", "d", "e", "f", "g"}; },
                    "driver-symbols", Severity::failure, "a, b, c, d, e and 2 more", "525"},
                   {"none", [](Facts&) {}, "driver-symbols", Severity::ok, "every entry point", ""}});
}

TEST(Doctor, each_failure_of_cuda_to_start_is_explained) {
  struct Expected {
    int code;
    const char* meaning;
    const char* remedy;
  };
  for (const auto& [code, meaning, remedy] : {
           Expected{2, "memory is exhausted", "nvidia-smi"},
           Expected{34, "stub", "LD_LIBRARY_PATH"},
           Expected{46, "exclusive", "nvidia-smi -c DEFAULT"},
           Expected{100, "finds no GPU", "nvidia-smi"},
           Expected{101, "does not exist", "CUDA_VISIBLE_DEVICES"},
           Expected{102, "licence", "vGPU"},
           Expected{304, "device node", "/dev/nvidia-uvm"},
           Expected{800, "not permitted", "profile"},
           Expected{802, "fabric manager", "systemctl enable --now nvidia-fabricmanager"},
           Expected{805, "MPS daemon cannot be reached", "nvidia-cuda-mps-control"},
           Expected{806, "MPS daemon", "nvidia-cuda-mps-control"},
           Expected{807, "MPS server", "nvidia-cuda-mps-control"},
           Expected{808, "clients", "fewer processes"},
           Expected{809, "connection", "CUDA_DEVICE_MAX_CONNECTIONS"},
           Expected{810, "ended this client", "nvidia-cuda-mps-control"},
           Expected{999, "suspend", "modprobe nvidia_uvm"},
           Expected{12345, "without a known cause", "dmesg"},
       }) {
    SCOPED_TRACE(code);
    auto facts = machine_with_gpus();
    fail_cuda(facts, code);
    const auto findings = diagnose(facts);
    const auto* const found = find(findings, "driver-init");
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->severity, Severity::failure);
    EXPECT_NE(found->summary.find(meaning), std::string::npos) << found->summary;
    EXPECT_NE(found->summary.find("CUDA_ERROR_" + std::to_string(code)), std::string::npos) << found->summary;
    EXPECT_NE(found->remedy.find(remedy), std::string::npos) << found->remedy;
  }
}

TEST(Doctor, no_device_is_a_note_where_there_is_no_gpu) {
  expect_findings(machine_without_gpu, {{"driver installed on a machine without GPU",
                                         [](Facts& f) {
                                           f.probe.report.cuda_library_error.clear();
                                           fail_cuda(f, 100);
                                         },
                                         "driver-init", Severity::note, "finds no GPU", ""}});
}

TEST(Doctor, no_device_is_left_to_the_finding_that_explains_it) {
  const auto expect_explained = [](const char* by, void (*change)(Facts&)) {
    SCOPED_TRACE(by);
    auto facts = machine_with_gpus();
    fail_cuda(facts, 100);
    change(facts);
    expect_silence(facts, "driver-init");
    EXPECT_NE(find(diagnose(facts), by), nullptr);
  };
  expect_explained("visible-devices", [](Facts& f) { f.environment.cuda_visible_devices = ""; });
  expect_explained("visible-devices", [](Facts& f) { f.probe.report.unmatched = {"7"}; });
  expect_explained("kernel-module", [](Facts& f) { f.kernel_module.clear(); });
  expect_explained("mig", [](Facts& f) { f.probe.report.present[0].mig_enabled = true; });
}

TEST(Doctor, nvml_must_load_and_start_where_there_is_a_gpu) {
  expect_findings(machine_with_gpus,
                  {{"missing", [](Facts& f) { f.probe.report.nvml_library_error = "not found"; }, "nvml",
                    Severity::failure, "cannot be loaded: not found", "libnvidia-ml"},
                   {"missing in a container",
                    [](Facts& f) {
                      f.is_container = true;
                      f.probe.report.nvml_library_error = "not found";
                    },
                    "nvml", Severity::failure, "cannot be loaded", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"},
                   {"GPU lost", [](Facts& f) { f.probe.report.nvml_init = ForeignResult{15, "GPU is lost"}; }, "nvml",
                    Severity::failure, "15: GPU is lost", "nvidia-smi"},
                   {"fine", [](Facts&) {}, "nvml", Severity::ok, "2 GPUs", ""}});
  const auto install_cuda = [](Facts& f) { f.probe.report.cuda_library_error.clear(); };
  auto bare = machine_without_gpu();
  install_cuda(bare);
  bare.probe.report.nvml_library_error = "not found";
  ASSERT_NE(find(diagnose(bare), "nvml"), nullptr);
  EXPECT_EQ(find(diagnose(bare), "nvml")->severity, Severity::note);
  bare.probe.report.nvml_library_error.clear();
  bare.probe.report.nvml_init = ForeignResult{9, "Driver Not Loaded"};
  EXPECT_EQ(find(diagnose(bare), "nvml")->severity, Severity::note);
}

}  // namespace
}  // namespace drover::observe
