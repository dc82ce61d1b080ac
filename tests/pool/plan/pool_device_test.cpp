// Workers with devices: tensors are passed by reference, and outlive workers.
#include <csignal>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/device/backend.hpp"
#include "drover/pool/pool.hpp"
#include "drover/pool/this_worker.hpp"
#include "pool/run/pool_support.hpp"
#include "support/backends.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::pool {
namespace {

using test::expect_error;
using test::kPatience;

const auto device_sum = task("device_sum", [](const Tensor& tensor) { return sum(tensor); });
const auto device_make = task("device_make", [](std::int64_t count) {
  return arange(this_worker().memory(), DType::int64, 0, count, this_worker().place());
});
const auto device_place = task("device_place", [] { return to_string(this_worker().place()); });
const auto device_fill = task("device_fill", [](const Tensor& tensor, int number) { tensor.fill(number); });
const auto device_die = task("device_die", [](const Tensor& tensor) {
  static_cast<void>(::raise(SIGKILL));
  return tensor;
});
const auto device_allocate = task("device_allocate", [](std::int64_t bytes) {
  return empty(this_worker().memory(), DType::uint8, {bytes}, this_worker().place()).element_count();
});

class PoolOnDevice : public test::PlaceTest {
 protected:
  void SetUp() override {
    PlaceTest::SetUp();
    if (!IsSkipped() && select_backend().backend.kind() != place().backend)
      GTEST_SKIP() << "this process has selected another backend";
  }
  [[nodiscard]] WorkerPlanOptions two() const { return {.workers = 2, .devices = GetParam()}; }
};

TEST_P(PoolOnDevice, every_worker_reports_its_device) {
  Pool pool(two());
  ASSERT_EQ(pool.wait_ready(Deadline::after(kPatience)), WaitResult::done);
  const auto& info = select_backend().backend.devices().at(static_cast<std::size_t>(place().index));
  for (const auto& worker : pool.workers()) {
    EXPECT_EQ(worker.place, GetParam());
    EXPECT_EQ(worker.device_uuid, uuid_text(info));
  }
  for (auto& future : pool.broadcast(device_place)) EXPECT_TRUE(Place::parse(future.get()).is_device);
}

TEST_P(PoolOnDevice, a_device_may_be_opened_by_the_first_task_that_uses_it) {
  const Backend& backend = select_backend().backend;
  const auto used = [&] { return backend.memory_info(place().index).used(); };
  const auto before = used();
  Pool pool(two(), {.opens_device = false});
  ASSERT_EQ(pool.wait_ready(Deadline::after(kPatience)), WaitResult::done);
  for (const auto& worker : pool.workers()) EXPECT_NE(worker.device_uuid, "") << "which one it has is known";
  EXPECT_LT(used(), before + kContextEstimate / 2) << "no context yet";
  for (auto& future : pool.broadcast(device_make, 1000)) EXPECT_EQ(sum(future.get()), 499'500.0);
}

TEST_P(PoolOnDevice, tensors_go_to_workers_and_come_back) {
  Pool pool(two());
  const Tensor tensor = arange(pool.memory(), DType::int64, 0, 100'000, place());
  EXPECT_EQ(pool.submit(device_sum, tensor).get(), 4'999'950'000.0);
  const Tensor made = pool.submit(device_make, 1000).get();
  EXPECT_EQ(made.place(), place());
  EXPECT_EQ(sum(made), 499'500.0);
  pool.submit(device_fill, tensor, 3).get();
  EXPECT_EQ(sum(tensor), 300'000.0);
}

TEST_P(PoolOnDevice, a_tensor_outlives_its_worker) {
  const test::CapturedLog log;
  Pool pool(two());
  const Tensor made = pool.submit(device_make, 1000).get();
  made.synchronize();
  expect_error(Errc::peer_lost, [&] { pool.submit(device_die, made).get(); }, {"'device_die'", "tensor int64[1000]"});
  EXPECT_EQ(sum(made), 499'500.0);
  EXPECT_EQ(pool.submit(device_sum, made).get(Deadline::after(kPatience)), 499'500.0);
}

TEST_P(PoolOnDevice, a_budget_limits_the_memory_of_a_worker) {
  WorkerPlanOptions plan = two();
  plan.memory_budget = std::uint64_t{8} << 20U;
  Pool pool(plan);
  EXPECT_EQ(pool.submit(device_allocate, 1 << 20).get(), 1 << 20);
  expect_error(Errc::limit_reached, [&] { pool.submit(device_allocate, 16 << 20).get(); }, {"'device_allocate'"});
}

TEST_P(PoolOnDevice, a_tensor_on_a_device_without_workers_is_refused) {
  Pool pool({.workers = 1, .devices = "none"});
  const Tensor tensor = zeros(pool.memory(), DType::uint8, {16}, place());
  expect_error(Errc::invalid_argument, [&] { pool.submit(device_sum, tensor); },
               {GetParam(), "no worker", "Tensor::to"});
}

INSTANTIATE_TEST_SUITE_P(Host, PoolOnDevice, ::testing::Values("host:0"), test::place_name);
INSTANTIATE_TEST_SUITE_P(Cuda, PoolOnDevice, ::testing::Values("cuda:0"), test::place_name);

TEST(PoolOnDevices, tasks_go_to_the_device_that_holds_their_tensors) {
  if (select_backend().backend.kind() != BackendKind::host || select_backend().backend.devices().size() < 2)
    GTEST_SKIP() << "needs two emulated devices";
  Pool pool({.workers = 2, .devices = "host:0,host:1"});
  ASSERT_EQ(pool.wait_ready(Deadline::after(kPatience)), WaitResult::done);
  const auto before = pool.workers();
  const Tensor tensor = arange(pool.memory(), DType::int64, 0, 1000, Place::parse("host:1"));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(pool.submit(device_sum, tensor).get(), 499'500.0);
  const auto after = pool.workers();
  EXPECT_EQ(after[0].done, before[0].done);
  EXPECT_EQ(after[1].done, before[1].done + 20);
}

}  // namespace
}  // namespace drover::pool
