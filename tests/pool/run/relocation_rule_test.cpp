// When a task is brought to another device: moving against waiting.
#include "pool/run/relocation_rule.hpp"

#include <gtest/gtest.h>

namespace drover {
namespace {

constexpr double kMillisecond = 1e6;
constexpr std::size_t kGigabyte = 1'000'000'000;

TEST(RelocationRule, nothing_is_moved_while_it_is_not_known_how_long_tasks_take) {
  EXPECT_FALSE(is_worth_relocating({.ahead = 1'000'000, .workers = 1, .mean_run = 0, .bytes = 0}));
}

TEST(RelocationRule, nothing_is_moved_that_need_not_wait) {
  EXPECT_FALSE(is_worth_relocating({.ahead = 0, .workers = 1, .mean_run = 1000 * kMillisecond, .bytes = 0}));
}

TEST(RelocationRule, moving_nothing_still_costs_something) {
  EXPECT_FALSE(is_worth_relocating({.ahead = 1, .mean_run = kRelocationNanoseconds, .bytes = 0}));
  EXPECT_TRUE(is_worth_relocating({.ahead = 1, .mean_run = kRelocationNanoseconds + 1, .bytes = 0}));
}

TEST(RelocationRule, bytes_take_their_time) {
  // A gigabyte takes 100 ms.
  EXPECT_FALSE(is_worth_relocating({.ahead = 10, .mean_run = 10 * kMillisecond, .bytes = kGigabyte}));
  EXPECT_TRUE(is_worth_relocating({.ahead = 10, .mean_run = 11 * kMillisecond, .bytes = kGigabyte}));
  EXPECT_TRUE(is_worth_relocating({.ahead = 10, .mean_run = 10 * kMillisecond, .bytes = kGigabyte / 2}));
}

TEST(RelocationRule, a_longer_backlog_makes_it_worth_more_and_more_workers_less) {
  const auto with = [](std::size_t ahead, std::size_t workers) {
    return is_worth_relocating({.ahead = ahead, .workers = workers, .mean_run = kMillisecond, .bytes = kGigabyte});
  };
  EXPECT_FALSE(with(100, 1));
  EXPECT_TRUE(with(101, 1));
  EXPECT_FALSE(with(101, 2));
  EXPECT_TRUE(with(202, 2));
}

TEST(RelocationRule, workers_that_are_all_gone_count_as_one) {
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

TEST(RelocationRule, gpus_of_others_are_seen_only_if_that_was_asked_for) {
  EXPECT_FALSE(sees_other_devices(on_device(BackendKind::cuda), {}));
  EXPECT_TRUE(sees_other_devices(on_device(BackendKind::cuda), {.sees_all = true}));
  EXPECT_FALSE(sees_other_devices(on_device(BackendKind::cuda, true), {.sees_all = true}));
}

TEST(RelocationRule, emulated_devices_are_all_seen_by_who_has_one) {
  EXPECT_TRUE(sees_other_devices(on_device(BackendKind::host), {}));
  EXPECT_FALSE(sees_other_devices(WorkerPlan{}, {.sees_all = true}));
}

}  // namespace
}  // namespace drover
