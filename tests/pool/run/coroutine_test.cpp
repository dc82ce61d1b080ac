// Functions that wait for results with co_await.
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/pool/future.hpp"
#include "pool/run/future_support.hpp"
#include "pool/run/pool_support.hpp"

namespace drover::pool {
namespace {

using test::expect_throws;
using test::failure;
using test::kPatience;
using test::made;
using test::To;

Future<int> add_one(Future<int> value) { co_return co_await value + 1; }
Future<void> store(Future<int> value, int& into) { into = co_await value; }
Future<std::pair<int, std::string>> pair_of(Future<int> value) { co_return {co_await value, "text"}; }
Future<int> or_else(Future<int> value, int other) {
  try {
    co_return co_await value;
  } catch (const std::runtime_error&) {
    co_return other;
  }
}
Future<int> throw_at_once(Future<int> /*value*/) {
  throw std::runtime_error("at once");
  co_return 0;
}
Future<int> sum_of(std::vector<Future<int>> values) {
  int sum = 0;
  for (const auto& value : values) sum += co_await value;
  co_return sum;
}

TEST(Coroutine, an_available_result_is_used_immediately) { EXPECT_EQ(add_one(made(1)).get(), 2); }

TEST(Coroutine, it_resumes_when_the_result_is_available) {
  const To<int> to;
  int stored = 0;
  const auto next = add_one(to.future);
  const auto end = store(next, stored);
  const auto pair = pair_of(next);
  EXPECT_FALSE(end.is_done());
  to.set(1);
  ASSERT_TRUE(end.is_done() && pair.is_done());
  EXPECT_EQ(stored, 2);
  EXPECT_EQ(pair.get(), std::pair(2, std::string("text")));
}

TEST(Coroutine, an_error_is_thrown_at_co_await) {
  const To<int> to;
  const auto next = add_one(to.future);
  const auto caught = or_else(next, 9);
  to.fail(failure("broken"));
  expect_throws(next, "broken");
  EXPECT_EQ(caught.get(), 9);
  expect_throws(throw_at_once(made(1)), "at once");
}

TEST(Coroutine, a_long_chain_does_not_overflow_the_stack) {
  const To<int> to;
  Future<int> last = to.future;
  constexpr int kLinks = 100'000;
  for (int i = 0; i < kLinks; ++i) last = add_one(last);
  to.set(0);
  ASSERT_TRUE(last.is_done());
  EXPECT_EQ(last.get(), kLinks);
}

TEST(Coroutine, results_of_many_threads_are_awaited) {
  for (int round = 0; round < 100; ++round) {
    const std::vector<To<int>> to(4);
    std::vector<Future<int>> values;
    for (const auto& one : to) values.push_back(one.future);
    std::vector<std::thread> threads;
    for (const auto& one : to) threads.emplace_back([&one] { one.set(1); });
    EXPECT_EQ(add_one(sum_of(std::move(values))).get(Deadline::after(kPatience)), 5);
    for (auto& thread : threads) thread.join();
  }
}

TEST(Coroutine, it_may_hold_the_last_reference_to_the_awaited_future) {
  for (int round = 0; round < 200; ++round) {
    To<int> to;
    Future<int> next;
    std::thread setter([state = std::move(to.state)]() mutable {
      state->set(1);
      state.reset();
    });
    next = add_one(std::move(to.future));
    EXPECT_EQ(next.get(Deadline::after(kPatience)), 2);
    setter.join();
  }
}

}  // namespace
}  // namespace drover::pool
