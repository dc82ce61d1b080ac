#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "fixture_run.hpp"
#include "support/leftovers.hpp"
#include "support/supervisor.hpp"
#include "support/temporary_folder.hpp"

namespace drover::test {
namespace {

void expect_test_failed(const ProgramResult& result) {
  EXPECT_EQ(result.status, ExitStatus::exited(1)) << result.status.to_string() << "\n" << result.output;
  expect_contains(result.output, "[  FAILED  ]");
}

TEST(Leftovers, test_that_leaves_nothing_behind_passes) {
  const auto result = run_fixture("Behaves.well");
  EXPECT_TRUE(result.status.is_success()) << result.output;
  EXPECT_EQ(result.output.find("left behind"), std::string::npos) << result.output;
}

TEST(Leftovers, failed_expectation_fails_the_program) {
  expect_test_failed(run_fixture("Behaves.badly_by_one_failed_expectation"));
}

TEST(Leftovers, child_fails_the_test_and_is_named) {
  const auto result = run_fixture("Leaves.a_child");
  expect_test_failed(result);
  expect_contains(result.output, "the test left behind a process: pid ");
  expect_contains(result.output, "sleep 1000");
}

TEST(Leftovers, zombie_fails_the_test) {
  const auto result = run_fixture("Leaves.a_zombie");
  expect_test_failed(result);
  expect_contains(result.output, ", state Z, child of ");
}

TEST(Leftovers, orphan_fails_the_test_that_made_it) {
  const auto result = run_fixture("Leaves.an_orphan");
  expect_test_failed(result);
  expect_contains(result.output, "the test left behind a process: pid ");
  expect_contains(result.output, "sleep 1000");
}

TEST(Leftovers, leftover_of_one_test_does_not_fail_the_next) {
  const auto result = run_fixture("Leaves.a_child:Behaves.well:Leaves.a_memory_file");
  expect_test_failed(result);
  expect_contains(result.output, "[       OK ] Behaves.well");
  expect_contains(result.output, "[  FAILED  ] 2 tests");
}

TEST(Leftovers, memory_file_fails_the_test_and_is_named) {
  const auto result = run_fixture("Leaves.a_memory_file");
  expect_test_failed(result);
  expect_contains(result.output, "-> /memfd:drover-left-over");
}

TEST(Leftovers, shared_memory_name_fails_the_test_and_is_removed) {
  const TemporaryFolder folder;
  const auto result = run_fixture("Leaves.a_shared_memory_name", {{"DROVER_TEST_SHM_DIR", folder.path().string()}});
  expect_test_failed(result);
  expect_contains(result.output, "a name of shared memory: drover-left-over");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Leftovers, registered_check_fails_the_test) {
  const auto result = run_fixture("Leaves.what_a_registered_check_finds");
  expect_test_failed(result);
  expect_contains(result.output, "the test left behind device resources: 2 streams");
}

TEST(Leftovers, child_started_after_the_last_test_fails_the_program) {
  const auto result = run_fixture("Behaves.well", {{"DROVER_FIXTURE_LATE_CHILD", "1"}});
  EXPECT_EQ(result.status, ExitStatus::exited(kLeftBehind)) << result.output;
  expect_contains(result.output, "[  PASSED  ] 1 test");
  expect_contains(result.output, "supervisor: left behind: a process: pid ");
  expect_contains(result.output, "sleep 1000");
}

TEST(Leftovers, descriptor_of_an_ignored_kind_may_stay) {
  ignore_descriptors("/dev/full");
  auto before = look_around(0);
  const int file = ::open("/dev/full", O_RDONLY | O_CLOEXEC);
  EXPECT_TRUE(clear_leftovers(before, 0).empty());
  ::close(file);
}

}  // namespace
}  // namespace drover::test
