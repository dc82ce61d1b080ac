// The doctor as a whole: verdicts, order, and findings on healthy and bare machines.
#include "drover/observe/doctor.hpp"

#include <set>

#include <gtest/gtest.h>

#include "observe/sample_facts.hpp"

namespace drover::observe {
namespace {

using namespace drover::test;

bool is_kebab_case(const std::string& id) {
  return !id.empty() && id.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") == std::string::npos;
}

TEST(Doctor, machine_with_healthy_gpus_gets_only_ok) {
  const auto findings = diagnose(machine_with_gpus());
  for (const auto& finding : findings) EXPECT_EQ(finding.severity, Severity::ok) << finding.id;
  EXPECT_EQ(worst(findings), Severity::ok);
  for (const auto* id :
       {"gpu", "kernel-module", "device-nodes", "driver-library", "driver-versions", "driver-symbols", "driver-init",
        "nvml", "visible-devices", "compute-mode", "shared-memory", "open-files", "memory-limit", "overcommit"}) {
    EXPECT_NE(find(findings, id), nullptr) << id;
  }
}

TEST(Doctor, machine_without_gpu_and_driver_gets_notes_but_no_warning) {
  const auto findings = diagnose(machine_without_gpu());
  EXPECT_EQ(worst(findings), Severity::note);
  ASSERT_NE(find(findings, "gpu"), nullptr);
  EXPECT_NE(find(findings, "gpu")->summary.find("emulated devices are used"), std::string::npos);
  for (const auto* id : {"container-gpu", "kernel-module", "device-nodes", "driver-versions", "driver-symbols",
                         "nvml", "visible-devices", "compute-mode", "mig", "mps", "backend-setting"}) {
    EXPECT_EQ(find(findings, id), nullptr) << id;
  }
}

TEST(Doctor, ids_are_kebab_case_and_unique_on_every_kind_of_machine) {
  for (const auto start : {machine_with_gpus, machine_without_gpu, machine_without_driver}) {
    std::set<std::string> ids;
    for (const auto& finding : diagnose(start())) {
      EXPECT_TRUE(is_kebab_case(finding.id)) << finding.id;
      EXPECT_TRUE(ids.insert(finding.id).second) << finding.id << " is repeated";
    }
  }
}

TEST(Doctor, same_facts_give_the_same_findings_in_the_same_order) {
  const auto facts = machine_without_driver();
  const auto first = diagnose(facts);
  const auto second = diagnose(facts);
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].id, second[i].id);
}

TEST(Doctor, facts_that_could_not_be_read_cause_no_failure) {
  EXPECT_LT(worst(diagnose(Facts{})), Severity::failure);
}

TEST(Doctor, worst_is_the_highest_severity) {
  EXPECT_EQ(worst({}), Severity::ok);
  for (const auto highest : kAllSeverities) {
    const std::vector<Finding> findings = {
        {"first", Severity::ok, "", ""}, {"middle", highest, "", ""}, {"last", Severity::ok, "", ""}};
    EXPECT_EQ(worst(findings), highest);
  }
}

TEST(Doctor, severities_have_the_names_that_json_uses) {
  EXPECT_EQ(to_string(Severity::ok), "ok");
  EXPECT_EQ(to_string(Severity::note), "note");
  EXPECT_EQ(to_string(Severity::warning), "warning");
  EXPECT_EQ(to_string(Severity::failure), "failure");
}

}  // namespace
}  // namespace drover::observe
