// Tasks that wait for a device while a worker of another device is idle.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/device/backend.hpp"
#include "drover/pool/pool.hpp"
#include "drover/pool/this_worker.hpp"
#include "pool/run/pool_support.hpp"
#include "support/backends.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace drover::pool {
namespace {

using namespace std::chrono_literals;
using test::expect_error;
using test::kPatience;
using test::make_file;

bool wait_for_file(const std::string& path) {
  const auto deadline = Deadline::after(kPatience);
  while (!std::filesystem::exists(path) && !deadline.has_passed()) std::this_thread::sleep_for(1ms);
  return std::filesystem::exists(path);
}

// The device where a task ran, that of its tensor, and the sum of the tensor.
struct Seen {
  std::string worker;
  std::string tensor;
  double total = 0;
};

Seen look_at(const Tensor& tensor) {
  return {.worker = to_string(this_worker().place()), .tensor = to_string(tensor.place()), .total = sum(tensor)};
}

const auto relocate_look = task("relocate_look", [](const Tensor& tensor) { return look_at(tensor); });
const auto relocate_sleep = task("relocate_sleep", [](const Tensor& tensor, int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return look_at(tensor);
});
// Waits for the second file.
const auto relocate_meet =
    task("relocate_meet", [](const Tensor& tensor, const std::string& mine, const std::string& other) {
      static_cast<void>(make_file(mine));
      return wait_for_file(other) ? look_at(tensor) : Seen{};
    });
const auto relocate_die_once = task("relocate_die_once", [](const Tensor& tensor, const std::string& marker) {
  if (make_file(marker)) static_cast<void>(::raise(SIGKILL));
  return look_at(tensor);
});
const auto relocate_same = task("relocate_same", [](const Tensor& tensor) { return tensor; });

constexpr TaskOptions kMayMove{.may_relocate = true};

// One worker on each of two emulated devices; all tensors are on the first.
class Relocation : public ::testing::Test {
 protected:
  static constexpr double kTotal = 499'500;

  void SetUp() override {
    static_cast<void>(test::reason_to_skip(BackendKind::host));
    if (select_backend().backend.kind() != BackendKind::host || select_backend().backend.devices().size() < 2)
      GTEST_SKIP() << "needs two emulated devices";
  }
  [[nodiscard]] static WorkerPlanOptions two() { return {.workers = 2, .devices = "host:0,host:1"}; }
  static Tensor tensor_of(const Pool& pool, std::int64_t count = 1000) {
    return arange(pool.memory(), DType::int64, 0, count, Place::parse("host:0"));
  }
  // Lets the pool learn a run time of at least `milliseconds`.
  static void teach(Pool& pool, const Tensor& tensor, int milliseconds) {
    ASSERT_EQ(pool.wait_ready(Deadline::after(kPatience)), WaitResult::done);
    EXPECT_EQ(pool.submit(relocate_sleep, tensor, milliseconds).get().worker, "host:0");
  }
  // Runs on the first device until `open_gate`.
  Future<Seen> block_home(Pool& pool, const Tensor& tensor) {
    const auto future = pool.submit({.worker = 0}, relocate_meet, tensor, path("blocked"), path("gate"));
    EXPECT_TRUE(wait_for_file(path("blocked")));
    return future;
  }
  void open_gate() { EXPECT_TRUE(make_file(path("gate"))); }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  static void expect_at(const Seen& seen, const std::string& place) {
    EXPECT_EQ(seen.worker, place);
    EXPECT_EQ(seen.tensor, place);
    EXPECT_EQ(seen.total, kTotal);
  }

  test::CapturedLog log_;  // of deaths
  test::TemporaryFolder folder_;
};

TEST_F(Relocation, an_idle_worker_takes_a_task_if_moving_is_faster_than_waiting) {
  Pool pool(two());
  const Tensor tensor = tensor_of(pool);
  teach(pool, tensor, 5);
  // Each succeeds only if the other runs at the same time.
  const auto one = pool.submit(kMayMove, relocate_meet, tensor, path("a"), path("b"));
  const auto other = pool.submit(kMayMove, relocate_meet, tensor, path("b"), path("a"));
  expect_at(one.get(), "host:0");
  expect_at(other.get(), "host:1");
  EXPECT_EQ(pool.statistics().relocated, 1U);
  EXPECT_EQ(tensor.place(), Place::parse("host:0"));
}

TEST_F(Relocation, slow_tasks_of_one_device_run_on_both) {
  Pool pool(two());
  const Tensor tensor = tensor_of(pool);
  teach(pool, tensor, 20);
  std::vector<Future<Seen>> futures;
  for (int i = 0; i < 12; ++i) futures.push_back(pool.submit(kMayMove, relocate_sleep, tensor, 20));
  std::uint64_t away = 0;
  for (auto& future : futures) {
    const Seen seen = future.get();
    expect_at(seen, seen.worker);
    away += seen.worker == "host:1" ? 1U : 0U;
  }
  EXPECT_GT(away, 0U);
  EXPECT_LT(away, futures.size());
  EXPECT_EQ(pool.statistics().relocated, away);
}

TEST_F(Relocation, a_task_that_waits_in_a_worker_is_taken_back_and_moved) {
  Pool pool(two());
  const Tensor tensor = tensor_of(pool);
  teach(pool, tensor, 5);
  const auto blocked = block_home(pool, tensor);
  // The other worker is busy, so the task waits in the first.
  const auto busy = pool.submit({.worker = 1}, relocate_meet, tensor, path("busy"), path("idle"));
  const auto waits = pool.submit(kMayMove, relocate_look, tensor);
  EXPECT_EQ(pool.statistics().pending, 0U);
  EXPECT_TRUE(make_file(path("idle")));
  expect_at(waits.get(Deadline::after(kPatience)), "host:1");
  EXPECT_GE(pool.statistics().moved, 1U);
  open_gate();
  expect_at(blocked.get(), "host:0");
  EXPECT_EQ(busy.get().worker, "host:1");
}

TEST_F(Relocation, tasks_that_need_not_wait_are_not_moved) {
  Pool pool(two());
  const Tensor tensor = tensor_of(pool);
  teach(pool, tensor, 5);
  for (int i = 0; i < 50; ++i) expect_at(pool.submit(kMayMove, relocate_look, tensor).get(), "host:0");
  EXPECT_EQ(pool.statistics().relocated, 0U);
}

TEST_F(Relocation, tasks_without_may_relocate_or_bound_to_a_worker_are_not_moved) {
  Pool pool(two());
  const Tensor tensor = tensor_of(pool);
  teach(pool, tensor, 5);
  std::vector<Future<Seen>> futures;
  for (int i = 0; i < 5; ++i) {
    futures.push_back(pool.submit(relocate_sleep, tensor, 5));
    futures.push_back(pool.submit({.worker = 0, .may_relocate = true}, relocate_sleep, tensor, 5));
  }
  for (auto& future : futures) expect_at(future.get(), "host:0");
  EXPECT_EQ(pool.statistics().relocated, 0U);
  EXPECT_EQ(pool.statistics().moved, 0U);
}

TEST_F(Relocation, tasks_of_unknown_run_time_are_not_moved) {
  Pool pool(two());
  const Tensor tensor = tensor_of(pool);
  ASSERT_EQ(pool.wait_ready(Deadline::after(kPatience)), WaitResult::done);
  const auto one = pool.submit(kMayMove, relocate_meet, tensor, path("a"), path("gate"));
  const auto other = pool.submit(kMayMove, relocate_look, tensor);
  EXPECT_TRUE(wait_for_file(path("a")));
  EXPECT_EQ(pool.workers()[1].done, 0U);
  open_gate();
  expect_at(one.get(), "host:0");
  expect_at(other.get(), "host:0");
}

TEST_F(Relocation, a_result_is_on_the_device_where_the_task_ran) {
  Pool pool(two());
  const Tensor tensor = tensor_of(pool);
  teach(pool, tensor, 5);
  const auto blocked = block_home(pool, tensor);
  const Tensor result = pool.submit(kMayMove, relocate_same, tensor).get();
  EXPECT_EQ(result.place(), Place::parse("host:1"));
  EXPECT_TRUE(equal(result, tensor));
  open_gate();
  static_cast<void>(blocked.get());
}

TEST_F(Relocation, recovery_works_for_relocated_tasks) {
  Pool pool(two());
  const Tensor tensor = tensor_of(pool);
  teach(pool, tensor, 5);
  const auto blocked = block_home(pool, tensor);
  expect_error(Errc::peer_lost, [&] { pool.submit(kMayMove, relocate_die_once, tensor, path("once")).get(); },
               {"'relocate_die_once'", "host:1", "tensor int64[1000]"});
  const TaskOptions again{.retry = Retry::times(1), .may_relocate = true};
  const auto retried = pool.submit(again, relocate_die_once, tensor, path("again"));
  expect_at(retried.get(Deadline::after(kPatience)), "host:1");
  EXPECT_EQ(pool.statistics().retried, 1U);
  EXPECT_EQ(pool.statistics().restarts, 2U);
  open_gate();
  expect_at(blocked.get(), "host:0");
  EXPECT_EQ(pool.statistics().relocated, 1U);  // lost tasks do not count
}

// No worker is left to run it, so it must not wait forever.
TEST_F(Relocation, a_task_is_not_retried_for_a_device_without_workers) {
  Pool pool(two());
  const Tensor tensor = arange(pool.memory(), DType::int64, 0, 1000, Place::parse("host:1"));
  const auto runs = pool.submit({.retry = Retry::times(1)}, relocate_meet, tensor, path("runs"), path("gate"));
  EXPECT_TRUE(wait_for_file(path("runs")));
  pool.resize(1);
  ASSERT_EQ(::kill(pool.workers()[1].pid, SIGKILL), 0);
  expect_error(Errc::peer_lost, [&] { static_cast<void>(runs.get(Deadline::after(kPatience))); },
               {"'relocate_meet'"});
}

// The budget limits workers, not the application, which owns the tensor.
TEST_F(Relocation, a_task_runs_at_home_if_the_other_device_lacks_memory) {
  constexpr std::int64_t kCount = 4 << 20;  // 32 MiB
  for (const bool has_room : {true, false}) {
    WorkerPlanOptions plan = two();
    plan.memory_budget = has_room ? 0 : std::uint64_t{8} << 20U;
    Pool pool(plan);
    const Tensor small = tensor_of(pool);
    const Tensor large = tensor_of(pool, kCount);
    teach(pool, small, 50);
    const auto blocked = block_home(pool, small);
    const auto looks =
        pool.submit(kMayMove, relocate_look, large);  // the pool decides here which worker gets it first
    open_gate();
    EXPECT_EQ(looks.get(Deadline::after(kPatience)).worker, has_room ? "host:1" : "host:0");
    EXPECT_EQ(pool.statistics().relocated, has_room ? 1U : 0U);
    EXPECT_EQ(pool.statistics().failed, 0U);
    expect_at(blocked.get(), "host:0");
    std::filesystem::remove(path("blocked"));
    std::filesystem::remove(path("gate"));
  }
}

}  // namespace
}  // namespace drover::pool
