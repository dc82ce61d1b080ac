// Findings about shared memory, open files and memory.
#include <gtest/gtest.h>

#include "observe/sample_facts.hpp"

namespace drover::observe {
namespace {

using namespace drover::test;

TEST(Doctor, small_or_full_shared_memory_is_a_warning) {
  expect_findings(
      machine_without_gpu,
      {{"plenty", [](Facts&) {}, "shared-memory", Severity::ok, "30.0 GiB free of 32.0 GiB", ""},
       {"missing", [](Facts& f) { f.shared_memory.reset(); }, "shared-memory", Severity::warning, "missing", "mount"},
       {"Docker's default",
        [](Facts& f) {
          f.is_container = true;
          f.shared_memory = SpaceFacts{64 * kMiB, 64 * kMiB};
        },
        "shared-memory", Severity::warning, "only 64.0 MiB; drover does not use it, but torch and NCCL do",
        "--shm-size"},
       {"small", [](Facts& f) { f.shared_memory = SpaceFacts{kGiB - 1, kGiB - 1}; }, "shared-memory",
        Severity::warning, "only", "remount"},
       {"just enough", [](Facts& f) { f.shared_memory = SpaceFacts{kGiB, kGiB}; }, "shared-memory", Severity::ok,
        "1.0 GiB", ""},
       {"full", [](Facts& f) { f.shared_memory->free = kGiB; }, "shared-memory", Severity::warning, "nearly full",
        "ls -l /dev/shm"}});
}

TEST(Doctor, few_open_files_are_a_warning) {
  expect_findings(
      machine_without_gpu,
      {{"plenty", [](Facts&) {}, "open-files", Severity::ok, "65536", ""},
       {"soft limit low", [](Facts& f) { f.open_files.soft_limit = 1024; }, "open-files", Severity::warning,
        "1024 files", "ulimit -n 65536"},
       {"soft limit low, and the hard limit below the usual advice",
        [](Facts& f) { f.open_files = {.soft_limit = 1024, .hard_limit = 8192, .in_use = 3}; }, "open-files",
        Severity::warning, "1024 files", "ulimit -n 8192"},
       {"hard limit low", [](Facts& f) { f.open_files = {.soft_limit = 1024, .hard_limit = 4095, .in_use = 3}; },
        "open-files", Severity::warning, "cannot raise that", "limits.conf"},
       {"hard limit low in a container",
        [](Facts& f) {
          f.is_container = true;
          f.open_files = {.soft_limit = 1024, .hard_limit = 1024, .in_use = 3};
        },
        "open-files", Severity::warning, "1024 files at most", "--ulimit nofile"},
       {"nearly used up", [](Facts& f) { f.open_files.in_use = 60000; }, "open-files", Severity::warning,
        "60000 of 65536 files are open", "ulimit -n"},
       {"just enough", [](Facts& f) { f.open_files.soft_limit = 4096; }, "open-files", Severity::ok, "4096", ""}});
  auto unknown = machine_without_gpu();
  unknown.open_files = {};
  expect_silence(unknown, "open-files");
}

TEST(Doctor, memory_limit_that_is_low_or_near_is_a_warning) {
  expect_findings(
      machine_without_gpu,
      {{"none", [](Facts&) {}, "memory-limit", Severity::ok, "no memory limit", ""},
       {"above the memory of the machine", [](Facts& f) { f.memory_limits = {{"/a", 64 * kGiB, 63 * kGiB}}; },
        "memory-limit", Severity::ok, "no memory limit", ""},
       {"wide", [](Facts& f) { f.memory_limits = {{"/a", 32 * kGiB, kGiB}}; }, "memory-limit", Severity::ok,
        "1.0 GiB of 32.0 GiB used in cgroup /a", ""},
       {"near", [](Facts& f) { f.memory_limits = {{"/a", 10 * kGiB, 9 * kGiB}}; }, "memory-limit", Severity::warning,
        "nearly reached", "MemoryMax"},
       {"exceeded", [](Facts& f) { f.memory_limits = {{"/a", 10 * kGiB, 11 * kGiB}}; }, "memory-limit",
        Severity::warning, "nearly reached", "fewer workers"},
       {"low", [](Facts& f) { f.memory_limits = {{"/a", kGiB, 100 * kMiB}}; }, "memory-limit", Severity::warning,
        "low", "MemoryMax"},
       {"low in a container",
        [](Facts& f) {
          f.is_container = true;
          f.memory_limits = {{"/", kGiB, 100 * kMiB}};
        },
        "memory-limit", Severity::warning, "low", "docker run --memory"},
       {"near only in the cgroup above",
        [](Facts& f) { f.memory_limits = {{"/a/b", 8 * kGiB, kGiB}, {"/a", 16 * kGiB, 15 * kGiB}}; }, "memory-limit",
        Severity::warning, "15.0 GiB of 16.0 GiB used in cgroup /a", "MemoryMax"}});
}

TEST(Doctor, strict_overcommit_is_a_warning) {
  expect_findings(machine_without_gpu,
                  {{"heuristic", [](Facts&) {}, "overcommit", Severity::ok, "vm.overcommit_memory=0", ""},
                   {"always", [](Facts& f) { f.overcommit_memory = 1; }, "overcommit", Severity::ok, "=1", ""},
                   {"strict", [](Facts& f) { f.overcommit_memory = 2; }, "overcommit", Severity::warning, "=2",
                    "sysctl vm.overcommit_memory=0"}});
  auto unknown = machine_without_gpu();
  unknown.overcommit_memory.reset();
  expect_silence(unknown, "overcommit");
}

}  // namespace
}  // namespace drover::observe
