// tests/observe/sample_facts.hpp: sample machines, and checks of their findings.
#pragma once

#include <initializer_list>
#include <string>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/observe/doctor.hpp"

namespace drover::test {

/// Generous limits; no GPU, no driver.
inline Facts machine_without_gpu() {
  Facts facts;
  facts.probe.report.cuda_library = "libcuda.so.1";
  facts.probe.report.cuda_library_error = "libcuda.so.1: cannot open shared object file: No such file or directory";
  facts.mps.pipe_directory = "/tmp/nvidia-mps";
  facts.shared_memory = SpaceFacts{.total = 32 * kGiB, .free = 30 * kGiB};
  facts.open_files = {.soft_limit = 65536, .hard_limit = 1048576, .in_use = 12};
  facts.memory_total = 64 * kGiB;
  facts.overcommit_memory = 0;
  return facts;
}

/// A GPU as NVML lists it.
inline DeviceInfo gpu(int index, const std::string& name = "NVIDIA H200") {
  DeviceInfo info;
  info.backend = BackendKind::cuda;
  info.index = index;
  info.uuid.bytes.back() = static_cast<std::uint8_t>(index + 1);
  info.name = name;
  info.memory_total = 140 * kGiB;
  info.pci = "0000:1" + std::to_string(index) + ":00.0";
  info.mig_enabled = false;
  return info;
}

/// Two healthy GPUs.
inline Facts machine_with_gpus() {
  Facts facts = machine_without_gpu();
  auto& report = facts.probe.report;
  report.cuda_library_error.clear();
  report.cuda_version = 13000;
  report.cuda_init = ForeignResult{0, "success"};
  report.nvml_init = ForeignResult{0, "Success"};
  report.driver_version = "580.159.04";
  report.present = {gpu(0), gpu(1)};
  report.visible = report.present;
  facts.kernel_module = "580.159.04";
  facts.pci_gpus = {{"0000:10:00.0", "nvidia"}, {"0000:11:00.0", "nvidia"}};
  facts.device_nodes = {
      {"/dev/nvidia-uvm", true}, {"/dev/nvidia0", true}, {"/dev/nvidia1", true}, {"/dev/nvidiactl", true}};
  return facts;
}

/// Makes cuInit fail with `code`.
inline void fail_cuda(Facts& facts, int code) {
  facts.probe.report.cuda_init = ForeignResult{code, "CUDA_ERROR_" + std::to_string(code)};
}

/// A GPU on the bus, but neither kernel module nor libraries.
inline Facts machine_without_driver() {
  Facts facts = machine_without_gpu();
  facts.pci_gpus = {{"0000:10:00.0", ""}};
  return facts;
}

/// The finding with this id; nullptr if there is none.
inline const Finding* find(const std::vector<Finding>& findings, const std::string& id) {
  for (const auto& finding : findings) {
    if (finding.id == id) return &finding;
  }
  return nullptr;
}

/// A change to a machine, and the finding it must cause.
struct Case {
  const char* what;              ///< the change, in words
  void (*change)(Facts& facts);  ///< the change
  const char* id;                ///< id of the finding
  Severity severity;             ///< its severity
  const char* summary;           ///< part of its summary
  const char* remedy;            ///< part of its remedy
};

/// Applies each change to a fresh `start()` and checks the finding.
inline void expect_findings(Facts (*start)(), std::initializer_list<Case> cases) {
  for (const auto& expected : cases) {
    SCOPED_TRACE(expected.what);
    Facts facts = start();
    expected.change(facts);
    const auto findings = diagnose(facts);
    const auto* const found = find(findings, expected.id);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(to_string(found->severity), to_string(expected.severity));
    EXPECT_NE(found->summary.find(expected.summary), std::string::npos) << found->summary;
    EXPECT_NE(found->remedy.find(expected.remedy), std::string::npos) << found->remedy;
    EXPECT_EQ(found->summary.find('\n'), std::string::npos) << "a summary is one line";
    EXPECT_TRUE(found->severity != Severity::ok || found->remedy.empty()) << found->remedy;
    EXPECT_TRUE(found->severity < Severity::warning || !found->remedy.empty());
  }
}

/// Checks that the doctor does not mention `id`.
inline void expect_silence(const Facts& facts, const std::string& id) {
  const auto findings = diagnose(facts);
  const auto* const found = find(findings, id);
  EXPECT_EQ(found, nullptr) << id << ": " << found->summary;
}

}  // namespace drover::test
