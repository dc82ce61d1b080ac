// Tasks in workers: results, errors, order, and what is refused.
#include "drover/pool/pool.hpp"

#include <unistd.h>

#include <atomic>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/pool/task.hpp"
#include "drover/pool/this_worker.hpp"
#include "pool/run/pool_support.hpp"
#include "support/expect_error.hpp"

namespace drover::pool {
namespace {

using test::expect_error;
using test::kPatience;

enum class Color : std::uint8_t { red, green };
struct Box {
  int width = 0;
  std::string label;
  std::vector<double> values;
  Color color = Color::red;
};

const auto add = task("add", [](int a, int b) { return a + b; });
const auto twice = task("twice", [](std::int64_t x) { return 2 * x; });
const auto nothing = task("nothing", [] {});
const auto grow = task("grow", [](Box box) {
  box.width *= 2;
  box.label += "!";
  box.values.push_back(1.5);
  box.color = Color::green;
  return box;
});
const auto count_words = task("count_words", [](const std::vector<std::string>& words) {
  std::map<std::string, int> counts;
  for (const auto& word : words) ++counts[word];
  return counts;
});
const auto half =
    task("half", [](int x) -> std::optional<int> { return x % 2 == 0 ? std::optional(x / 2) : std::nullopt; });
const auto throw_standard = task("throw_standard", [](const std::string& text) { throw std::out_of_range(text); });
const auto throw_own = task("throw_own", [] { throw Error(Errc::busy, "the printer is busy", "wait for it"); });
const auto throw_number = task("throw_number", [] { throw 7; });  // NOLINT(hicpp-exception-baseclass)
const auto process_id = task("process_id", [] { return static_cast<std::int64_t>(::getpid()); });
const auto sum_up = task("sum_up", [](const Tensor& tensor) { return sum(tensor); });
const auto sum_all = task("sum_all", [](const std::vector<Tensor>& tensors) {
  double total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) total += static_cast<double>(i + 1) * sum(tensors[i]);
  return total;
});
const auto make_many = task("make_many", [](std::int64_t count) {
  std::vector<Tensor> tensors;
  for (std::int64_t i = 0; i < count; ++i) {
    tensors.push_back(full(this_worker().memory(), DType::int64, {2}, i, this_worker().place()));
  }
  return tensors;
});
const auto make_numbers = task("make_numbers", [](std::int64_t count) {
  return arange(this_worker().memory(), DType::int64, 0, count, this_worker().place());
});
const auto big_text = task("big_text", [](std::size_t bytes) { return std::string(bytes, 'x'); });

struct Missing : std::runtime_error {
  using std::runtime_error::runtime_error;
};
const bool missing_is_known = register_exception<Missing>();
const auto throw_missing = task("throw_missing", [] { throw Missing("no model"); });

class PoolTest : public ::testing::Test {
 protected:
  Pool pool_{{.workers = 2, .devices = "none"}};
};

TEST_F(PoolTest, gives_results_of_all_kinds) {
  EXPECT_EQ(pool_.submit(add, 2, 3).get(), 5);
  pool_.submit(nothing).get();
  const Box box = pool_.submit(grow, Box{.width = 4, .label = "a", .values = {0.5}}).get();
  EXPECT_EQ(box.width, 8);
  EXPECT_EQ(box.label, "a!");
  EXPECT_EQ(box.values, (std::vector<double>{0.5, 1.5}));
  EXPECT_EQ(box.color, Color::green);
  const auto counts = pool_.submit(count_words, std::vector<std::string>{"a", "b", "a"}).get();
  EXPECT_EQ(counts, (std::map<std::string, int>{{"a", 2}, {"b", 1}}));
  EXPECT_EQ(pool_.submit(half, 8).get(), 4);
  EXPECT_EQ(pool_.submit(half, 7).get(), std::nullopt);
}

TEST_F(PoolTest, large_arguments_and_results_just_work) {
  // More than the queues of tasks (16 MiB) and results (64 MiB) hold; sanitizers make each byte expensive.
  const std::size_t argument = std::size_t{20} << 20U;
  const std::size_t result = std::size_t{68} << 20U;
  EXPECT_EQ(pool_.submit(big_text, result).get().size(), result);
  EXPECT_EQ(pool_.submit(count_words, std::vector<std::string>{std::string(argument, 'y')}).get().size(), 1U);
}

TEST_F(PoolTest, runs_tasks_in_other_processes) {
  std::set<std::int64_t> ids;
  for (auto& future : pool_.broadcast(process_id)) ids.insert(future.get());
  EXPECT_EQ(ids.size(), 2U);
  EXPECT_FALSE(ids.contains(::getpid()));
}

TEST_F(PoolTest, a_task_is_found_by_its_name_if_the_types_fit) {
  EXPECT_EQ(pool_.submit<int>("add", 2, 3).get(), 5);
  expect_error(Errc::not_found, [&] { pool_.submit<int>("ad", 2, 3); }, {"'ad'", "add", "drover::task"});
  expect_error(Errc::invalid_argument, [&] { pool_.submit<int>("add", 2.5, 3); },
               {"'add'", "(int32,int32) -> int32", "(float64,int32) -> int32"});
}

TEST_F(PoolTest, exceptions_keep_type_and_text) {
  try {
    pool_.submit(throw_standard, "index 9").get();
    FAIL();
  } catch (const std::out_of_range& error) {
    EXPECT_NE(std::string(error.what()).find("index 9"), std::string::npos);
    const auto& remote = dynamic_cast<const RemoteException&>(error).remote();
    EXPECT_EQ(remote.type, "std::out_of_range");
    EXPECT_NE(remote.task.find("'throw_standard'"), std::string::npos);
    EXPECT_NE(remote.worker.find("worker-"), std::string::npos);
    EXPECT_EQ(remote.stack.find("WorkerLoop"), std::string::npos) << remote.stack;
  }
  EXPECT_THROW(pool_.submit(throw_missing).get(), Missing);
  EXPECT_TRUE(missing_is_known);
  expect_error(Errc::busy, [&] { pool_.submit(throw_own).get(); },
               {"the printer is busy", "wait for it", "'throw_own'", "worker-"});
  expect_error(Errc::task_failed, [&] { pool_.submit(throw_number).get(); }, {"int", "'throw_number'"});
  EXPECT_EQ(pool_.submit(add, 1, 1).get(), 2);
}

TEST_F(PoolTest, maps_in_order) {
  std::vector<std::int64_t> items(10'000);
  std::iota(items.begin(), items.end(), 0);
  const auto results = pool_.map(twice, items);
  ASSERT_EQ(results.size(), items.size());
  for (std::size_t i = 0; i < items.size(); ++i) ASSERT_EQ(results[i], 2 * items[i]);
}

TEST_F(PoolTest, starmap_spreads_tuples) {
  const std::vector<std::tuple<int, int>> items = {{1, 2}, {3, 4}};
  EXPECT_EQ(pool_.starmap(add, items), (std::vector<int>{3, 7}));
}

TEST_F(PoolTest, imap_bounds_the_tasks_in_flight) {
  std::atomic<int> taken = 0;
  auto items = std::views::iota(std::int64_t{0}, std::int64_t{1000}) | std::views::transform([&](std::int64_t i) {
                 ++taken;
                 return i;
               });
  std::int64_t expected = 0;
  for (const auto result : pool_.imap(twice, items, {.in_flight = 10})) {
    ASSERT_EQ(result, 2 * expected);
    ++expected;
    ASSERT_LE(taken, expected + 10);
  }
  EXPECT_EQ(expected, 1000);
}

TEST_F(PoolTest, imap_unordered_yields_each_result_once) {
  std::multiset<std::int64_t> results;
  for (const auto result : pool_.imap_unordered(twice, std::views::iota(std::int64_t{0}, std::int64_t{5000})))
    results.insert(result);
  EXPECT_EQ(results.size(), 5000U);
  EXPECT_EQ(std::set<std::int64_t>(results.begin(), results.end()).size(), 5000U);
}

TEST_F(PoolTest, a_map_throws_the_first_error_and_the_pool_goes_on) {
  const std::vector<std::string> items(100, "none");
  EXPECT_THROW(pool_.map(throw_standard, items), std::out_of_range);
  EXPECT_EQ(pool_.submit(add, 1, 2).get(), 3);
}

TEST_F(PoolTest, arguments_and_results_may_have_many_tensors) {
  for (const std::int64_t count : {33, 60, 1000}) {
    std::vector<Tensor> tensors;
    double total = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      tensors.push_back(full(pool_.memory(), DType::int64, {3}, i));
      total += static_cast<double>((i + 1) * 3 * i);
    }
    auto sums = pool_.submit(sum_all, tensors);
    auto again = pool_.submit(sum_all, tensors);
    EXPECT_EQ(sums.get(), total);
    EXPECT_EQ(again.get(), total);
    const auto made = pool_.submit(make_many, count).get();
    ASSERT_EQ(made.size(), static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(sum(made[static_cast<std::size_t>(i)]), static_cast<double>(2 * i)) << i;
    }
  }
}

TEST_F(PoolTest, tensors_are_passed_by_reference) {
  const Tensor tensor = arange(pool_.memory(), DType::float64, 0, 1000);
  EXPECT_EQ(pool_.submit(sum_up, tensor).get(), 499'500.0);
  const Tensor made = pool_.submit(make_numbers, 100).get();
  EXPECT_EQ(sum(made), 4950.0);
  const Session other = Session::start();
  const Tensor foreign = arange(Memory(other), DType::float64, 0, 10);
  expect_error(Errc::invalid_argument, [&] { pool_.submit(sum_up, foreign); }, {"another session", "Pool::memory"});
}

TEST_F(PoolTest, many_threads_submit) {
  std::vector<std::thread> threads;
  std::atomic<std::int64_t> total = 0;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::int64_t i = 0; i < 500; ++i) total += pool_.submit(twice, i).get();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(total, 4 * 2 * (499 * 500 / 2));
}

TEST_F(PoolTest, statistics_and_workers_report_finished_tasks) {
  ASSERT_EQ(pool_.wait_ready(Deadline::after(kPatience)), WaitResult::done);
  pool_.map(twice, std::vector<std::int64_t>(100, 1));
  const auto statistics = pool_.statistics();
  EXPECT_EQ(statistics.finished, 100U);
  EXPECT_EQ(statistics.failed, 0U);
  EXPECT_EQ(statistics.pending + statistics.in_flight, 0U);
  const auto workers = pool_.workers();
  ASSERT_EQ(workers.size(), 2U);
  EXPECT_EQ(workers[0].name, "worker-0");
  EXPECT_EQ(workers[1].place, "cpu");
  EXPECT_TRUE(workers[0].is_ready);
  EXPECT_EQ(workers[0].starts, 1U);
}

TEST_F(PoolTest, an_ended_pool_refuses_tasks) {
  EXPECT_EQ(pool_.join(Deadline::after(kPatience)), WaitResult::done);
  expect_error(Errc::cancelled, [&] { pool_.submit(add, 1, 2); }, {"joined", "another pool"});
}

TEST_F(PoolTest, a_worker_that_does_not_exist_is_refused) {
  expect_error(Errc::invalid_argument, [&] { pool_.submit(TaskOptions{.worker = 2}, add, 1, 2); },
               {"worker 2", "has 2", "numbered from 0"});
}

TEST(PoolNow, this_worker_throws_outside_of_workers) {
  expect_error(Errc::not_found, [] { static_cast<void>(this_worker()); }, {"not a worker", "only in tasks"});
}

}  // namespace
}  // namespace drover::pool
