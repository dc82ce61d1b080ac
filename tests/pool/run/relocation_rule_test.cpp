// The cost of moving a task to another device against that of waiting.
#include "pool/run/relocation_rule.hpp"

#include <gtest/gtest.h>

namespace drover::pool {
namespace {

constexpr double kMillisecond = 1e6;
constexpr std::size_t kGigabyte = 1'000'000'000;

TEST(RelocationRule, nothing_is_moved_while_the_run_time_is_unknown) {
  EXPECT_FALSE(is_worth_relocating({.ahead = 1'000'000, .workers = 1, .mean_run = 0, .bytes = 0}));
}

TEST(RelocationRule, nothing_is_moved_that_does_not_wait) {
  EXPECT_FALSE(is_worth_relocating({.ahead = 0, .workers = 1, .mean_run = 1000 * kMillisecond, .bytes = 0}));
}

TEST(RelocationRule, moving_no_bytes_has_a_cost) {
  EXPECT_FALSE(is_worth_relocating({.ahead = 1, .mean_run = kRelocationNanoseconds, .bytes = 0}));
  EXPECT_TRUE(is_worth_relocating({.ahead = 1, .mean_run = kRelocationNanoseconds + 1, .bytes = 0}));
}

TEST(RelocationRule, the_cost_grows_with_the_bytes) {
  // A gigabyte takes 100 ms.
  EXPECT_FALSE(is_worth_relocating({.ahead = 10, .mean_run = 10 * kMillisecond, .bytes = kGigabyte}));
  EXPECT_TRUE(is_worth_relocating({.ahead = 10, .mean_run = 11 * kMillisecond, .bytes = kGigabyte}));
  EXPECT_TRUE(is_worth_relocating({.ahead = 10, .mean_run = 10 * kMillisecond, .bytes = kGigabyte / 2}));
}

TEST(RelocationRule, a_longer_backlog_favours_moving_and_more_workers_do_not) {
  const auto with = [](std::size_t ahead, std::size_t workers) {
    return is_worth_relocating({.ahead = ahead, .workers = workers, .mean_run = kMillisecond, .bytes = kGigabyte});
  };
  EXPECT_FALSE(with(100, 1));
  EXPECT_TRUE(with(101, 1));
  EXPECT_FALSE(with(101, 2));
  EXPECT_TRUE(with(202, 2));
}

TEST(RelocationRule, no_workers_count_as_one) {
  EXPECT_TRUE(is_worth_relocating({.ahead = 1, .workers = 0, .mean_run = kMillisecond, .bytes = 0}));
  EXPECT_FALSE(is_worth_relocating({.ahead = 0, .workers = 0, .mean_run = kMillisecond, .bytes = 0}));
}

WorkerPlan on_device(BackendKind backend, bool is_mig_instance = false) {
  WorkerPlan plan;
  plan.device.emplace();
  plan.device->info.backend = backend;
  plan.device->info.is_mig_instance = is_mig_instance;
  return plan;
}

TEST(RelocationRule, other_gpus_are_visible_only_with_sees_all) {
  EXPECT_FALSE(sees_other_devices(on_device(BackendKind::cuda), {}));
  EXPECT_TRUE(sees_other_devices(on_device(BackendKind::cuda), {.sees_all = true}));
  EXPECT_FALSE(sees_other_devices(on_device(BackendKind::cuda, true), {.sees_all = true}));
}

TEST(RelocationRule, a_worker_with_an_emulated_device_sees_all_of_them) {
  EXPECT_TRUE(sees_other_devices(on_device(BackendKind::host), {}));
  EXPECT_FALSE(sees_other_devices(WorkerPlan{}, {.sees_all = true}));
}

}  // namespace
}  // namespace drover::pool
