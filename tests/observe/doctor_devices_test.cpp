// Findings about settings that hide, order, share or partition devices.
#include <gtest/gtest.h>

#include "observe/sample_facts.hpp"

namespace drover::observe {
namespace {

using namespace drover::test;

TEST(Doctor, visible_devices_must_name_existing_gpus) {
  expect_findings(
      machine_with_gpus,
      {{"unset", [](Facts&) {}, "visible-devices", Severity::ok, "2 of 2 GPUs visible", ""},
       {"one of two",
        [](Facts& f) {
          f.environment.cuda_visible_devices = "1";
          f.probe.report.visible = {gpu(1)};
        },
        "visible-devices", Severity::ok, "1 of 2 GPUs visible by CUDA_VISIBLE_DEVICES=1", ""},
       {"empty", [](Facts& f) { f.environment.cuda_visible_devices = ""; }, "visible-devices", Severity::warning,
        "hides every GPU", "unset CUDA_VISIBLE_DEVICES"},
       {"minus one", [](Facts& f) { f.environment.cuda_visible_devices = " -1"; }, "visible-devices",
        Severity::warning, "hides every GPU", "unset CUDA_VISIBLE_DEVICES"},
       {"bad entry after a good one",
        [](Facts& f) {
          f.environment.cuda_visible_devices = "0,7,1";
          f.probe.report.visible = {gpu(0)};
          f.probe.report.unmatched = {"7", "1"};
        },
        "visible-devices", Severity::warning,
        "\"7\", which does not exist; CUDA ignores it and everything after it, so 1 GPU is", "take \"7\" out"},
       {"entry given twice",
        [](Facts& f) {
          f.environment.cuda_visible_devices = "0,0";
          f.probe.report.visible.clear();
          f.probe.report.unmatched = {"0"};
        },
        "visible-devices", Severity::failure, "names \"0\" twice", "each GPU once"},
       {"bad entry first",
        [](Facts& f) {
          f.environment.cuda_visible_devices = "7,0";
          f.probe.report.visible.clear();
          f.probe.report.unmatched = {"7", "0"};
        },
        "visible-devices", Severity::failure, "so 0 GPUs are visible", "nvidia-smi -L"}});
}

TEST(Doctor, hiding_gpus_is_harmless_where_there_are_none) {
  auto facts = machine_without_gpu();
  facts.environment.cuda_visible_devices = "";
  expect_silence(facts, "visible-devices");
}

TEST(Doctor, indices_of_gpus_of_different_models_need_an_order) {
  const auto mix_models = [](Facts& f) {
    f.probe.report.present = {gpu(0, "NVIDIA T4"), gpu(1, "NVIDIA H200")};
    f.environment.cuda_visible_devices = "0";
  };
  expect_findings(machine_with_gpus, {{"fastest first", mix_models, "device-order", Severity::warning,
                                       "different models", "CUDA_DEVICE_ORDER=PCI_BUS_ID"},
                                      {"by bus",
                                       [](Facts& f) {
                                         f.probe.report.present = {gpu(0, "NVIDIA T4"), gpu(1, "NVIDIA H200")};
                                         f.environment.cuda_visible_devices = "0";
                                         f.environment.cuda_device_order = "PCI_BUS_ID";
                                       },
                                       "device-order", Severity::ok, "PCI address", ""}});
  auto by_uuid = machine_with_gpus();
  mix_models(by_uuid);
  by_uuid.environment.cuda_visible_devices = "GPU-00000000";
  expect_silence(by_uuid, "device-order");
  auto alike = machine_with_gpus();
  alike.environment.cuda_visible_devices = "0,1";
  expect_silence(alike, "device-order");
}

TEST(Doctor, compute_mode_must_let_processes_share) {
  expect_findings(
      machine_with_gpus,
      {{"shared", [](Facts&) {}, "compute-mode", Severity::ok, "may be shared", ""},
       {"exclusive", [](Facts& f) { f.probe.report.visible[1].compute_mode = ComputeMode::exclusive_process; },
        "compute-mode", Severity::warning, "cuda:1 takes one process", "nvidia-smi -c DEFAULT"},
       {"exclusive under MPS",
        [](Facts& f) {
          f.probe.report.visible[1].compute_mode = ComputeMode::exclusive_process;
          f.mps.is_daemon_alive = true;
        },
        "compute-mode", Severity::note, "MPS server", ""},
       {"prohibited", [](Facts& f) { f.probe.report.visible[0].compute_mode = ComputeMode::prohibited; },
        "compute-mode", Severity::failure, "denies every process access to cuda:0", "nvidia-smi -c DEFAULT"}});
}

TEST(Doctor, mig_needs_an_instance) {
  expect_findings(machine_with_gpus,
                  {{"no instance", [](Facts& f) { f.probe.report.present[0].mig_enabled = true; }, "mig",
                    Severity::failure, "NVIDIA H200 at 0000:10:00.0", "nvidia-smi mig -cgi"},
                   {"instances in place of the GPU",
                    [](Facts& f) {
                      auto& instance = f.probe.report.present[0];
                      instance.mig_enabled = true;
                      instance.is_mig_instance = true;
                    },
                    "mig", Severity::note, "1 MIG instance: a process uses one", "nvidia-smi -mig 0"},
                   {"instances beside the GPU",
                    [](Facts& f) {
                      f.probe.report.present[0].mig_enabled = true;
                      auto instance = f.probe.report.present[0];
                      instance.is_mig_instance = true;
                      f.probe.report.present.push_back(instance);
                    },
                    "mig", Severity::note, "cannot be shared between them", "one instance"}});
  expect_silence(machine_with_gpus(), "mig");
}

TEST(Doctor, mps_is_one_fault_domain_and_must_be_alive_if_requested) {
  expect_findings(machine_with_gpus,
                  {{"running", [](Facts& f) { f.mps = {"/tmp/nvidia-mps", true, true}; }, "mps", Severity::note,
                    "a fatal fault in one process ends every process", "echo quit | nvidia-cuda-mps-control"},
                   {"left by a dead daemon", [](Facts& f) { f.mps.has_control = true; }, "mps", Severity::warning,
                    "/tmp/nvidia-mps has left-over files", "remove the directory /tmp/nvidia-mps"},
                   {"requested, but missing",
                    [](Facts& f) {
                      f.environment.mps_pipe_directory = "/run/mps";
                      f.mps.pipe_directory = "/run/mps";
                    },
                    "mps", Severity::warning, "CUDA_MPS_PIPE_DIRECTORY=/run/mps has no MPS daemon",
                    "unset CUDA_MPS_PIPE_DIRECTORY"},
                   {"requested, and CUDA cannot connect",
                    [](Facts& f) {
                      f.environment.mps_pipe_directory = "/run/mps";
                      f.mps = {"/run/mps", true, false};
                      fail_cuda(f, 805);
                    },
                    "mps", Severity::failure, "/run/mps has left-over files", "nvidia-cuda-mps-control -d"},
                   {"daemon outside this container",
                    [](Facts& f) {
                      f.is_container = true;
                      f.mps.has_control = true;
                    },
                    "mps", Severity::note, "cannot see", ""}});
  expect_silence(machine_with_gpus(), "mps");
}

TEST(Doctor, requested_backend_must_be_available) {
  expect_findings(machine_with_gpus,
                  {{"cuda", [](Facts& f) { f.environment.backend = "cuda"; }, "backend-setting", Severity::ok,
                    "as requested", ""},
                   {"host beside a GPU", [](Facts& f) { f.environment.backend = "host"; }, "backend-setting",
                    Severity::note, "although a GPU is visible", "unset DROVER_BACKEND"},
                   {"unknown", [](Facts& f) { f.environment.backend = "rocm"; }, "backend-setting", Severity::failure,
                    "DROVER_BACKEND=rocm names no backend", "auto, host or cuda"},
                   {"cuda with a driver that hangs",
                    [](Facts& f) {
                      f.environment.backend = "cuda";
                      f.probe.outcome = ProbeOutcome::timed_out;
                    },
                    "backend-setting", Severity::failure, "does not answer", "unset DROVER_BACKEND"},
                   {"cuda with an old driver",
                    [](Facts& f) {
                      f.environment.backend = "cuda";
                      f.probe.report.missing_symbols = {"cuMemMap"};
                    },
                    "backend-setting", Severity::failure, "too old", "unset DROVER_BACKEND"},
                   {"cuda that does not start",
                    [](Facts& f) {
                      f.environment.backend = "cuda";
                      fail_cuda(f, 999);
                    },
                    "backend-setting", Severity::failure, "cuInit gave 999", "unset DROVER_BACKEND"},
                   {"cuda with every GPU hidden",
                    [](Facts& f) {
                      f.environment.backend = "cuda";
                      f.probe.report.visible.clear();
                    },
                    "backend-setting", Severity::failure, "no GPU is visible", "unset DROVER_BACKEND"}});
  expect_findings(machine_without_gpu,
                  {{"host", [](Facts& f) { f.environment.backend = "host"; }, "backend-setting", Severity::ok,
                    "as requested", ""},
                   {"cuda without a driver", [](Facts& f) { f.environment.backend = "cuda"; }, "backend-setting",
                    Severity::failure, "libcuda.so.1 cannot be loaded", "emulated devices"}});
}

TEST(Doctor, automatic_backend_gives_no_finding) {
  for (const auto* setting : {"", "auto"}) {
    auto facts = machine_with_gpus();
    facts.environment.backend = setting;
    expect_silence(facts, "backend-setting");
  }
}

}  // namespace
}  // namespace drover::observe
