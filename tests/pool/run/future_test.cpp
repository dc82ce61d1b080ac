// Futures: waiting, errors and callbacks.
#include "drover/pool/future.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "pool/run/callback_thread.hpp"
#include "pool/run/future_support.hpp"
#include "pool/run/pool_support.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"

namespace drover::pool {
namespace {

using detail::CallbackThread;
using test::expect_error;
using test::expect_throws;
using test::failure;
using test::kPatience;
using test::made;
using test::To;

static_assert(!std::is_copy_constructible_v<Completions<int>> && std::is_move_constructible_v<Completions<int>>);

TEST(Future, a_value_is_available_once_set) {
  const To<int> to;
  EXPECT_TRUE(to.future.is_valid());
  EXPECT_FALSE(to.future.is_done());
  EXPECT_TRUE(to.set(5));
  EXPECT_TRUE(to.future.is_done());
  EXPECT_EQ(to.future.wait(), WaitResult::done);
  EXPECT_EQ(to.future.get(), 5);
  EXPECT_EQ(to.future.error(), nullptr);
  EXPECT_FALSE(Future<int>().is_valid());
  EXPECT_EQ(Future<int>(to.future).id(), to.future.id());
}

TEST(Future, the_first_result_counts) {
  const To<int> to;
  EXPECT_TRUE(to.set(1));
  EXPECT_FALSE(to.set(2));
  EXPECT_FALSE(to.fail(failure("late")));
  EXPECT_EQ(to.future.get(), 1);
  const To<void> other;
  EXPECT_TRUE(other.fail(failure("early")));
  EXPECT_FALSE(other.set());
  expect_throws(other.future, "early");
  EXPECT_NE(other.future.error(), nullptr);
}

TEST(Future, a_result_is_copied_or_moved_out) {
  const To<std::string> to;
  to.set(100, 'x');
  EXPECT_EQ(to.future.get().size(), 100U);
  EXPECT_EQ(to.future.get().size(), 100U);
  EXPECT_EQ(Future<std::string>(to.future).get().size(), 100U);
  EXPECT_TRUE(to.future.get().empty());
  auto single = made(std::make_unique<int>(7));
  EXPECT_EQ(*std::move(single).get(), 7);
}

TEST(Future, a_wait_times_out_at_the_deadline) {
  const To<int> to;
  EXPECT_EQ(to.future.wait(Deadline::after(std::chrono::milliseconds(2))), WaitResult::timed_out);
  EXPECT_EQ(to.future.wait(Deadline::after(std::chrono::seconds(0))), WaitResult::timed_out);
  const auto get = [&] { static_cast<void>(to.future.get(Deadline::after(std::chrono::milliseconds(1)))); };
  expect_error(Errc::timed_out, get, {"a result was not ready at the deadline", "drover ps"});
  to.set(1);
  EXPECT_EQ(to.future.wait(Deadline::after(std::chrono::seconds(0))), WaitResult::done);
  EXPECT_EQ(to.future.get(Deadline::after(std::chrono::seconds(0))), 1);
}

// A value that cannot be copied.
struct Stubborn {
  Stubborn() = default;
  Stubborn(const Stubborn& /*other*/) { throw std::length_error("cannot be copied"); }
  Stubborn& operator=(const Stubborn&) = delete;
  ~Stubborn() = default;
};

TEST(Future, an_exception_of_the_value_s_constructor_becomes_the_error) {
  const To<Stubborn> to;
  const Stubborn value;
  EXPECT_TRUE(to.set(value));
  ASSERT_TRUE(to.future.is_done());
  EXPECT_THROW(static_cast<void>(to.future.get()), std::length_error);
  const To<Stubborn> one;
  const auto all = when_all<Stubborn>({one.future});
  one.set();
  ASSERT_TRUE(all.is_done());
  EXPECT_NE(all.error(), nullptr);
}

TEST(Future, callbacks_run_once_before_or_after_the_result) {
  const To<int> to;
  std::vector<int> seen;
  to.future.on_done([&](const Future<int>& done) { seen.push_back(done.get()); });
  to.future.on_done([&](const Future<int>& done) { seen.push_back(done.get() + 1); });
  EXPECT_TRUE(seen.empty());
  to.set(10);
  EXPECT_EQ(seen, (std::vector<int>{10, 11}));
  to.future.on_done([&](const Future<int>& done) { seen.push_back(done.get() + 2); });
  EXPECT_EQ(seen, (std::vector<int>{10, 11, 12}));
}

TEST(Future, an_exception_of_a_callback_is_logged_and_the_next_one_runs) {
  const test::CapturedLog log;
  const To<int> to;
  bool is_called = false;
  to.future.on_done([](const Future<int>&) { throw std::runtime_error("in the first callback"); });
  to.future.on_done([](const Future<int>&) { throw 7; });  // NOLINT(hicpp-exception-baseclass)
  to.future.on_done([&](const Future<int>&) { is_called = true; });
  EXPECT_TRUE(to.set(1));
  EXPECT_TRUE(is_called);
  to.future.on_done([](const Future<int>&) { throw std::runtime_error("in a late callback"); });
  EXPECT_TRUE(log.contains("in the first callback"));
  EXPECT_TRUE(log.contains("other than a std::exception"));
  EXPECT_TRUE(log.contains("in a late callback"));
}

TEST(Future, then_applies_a_function_to_the_result) {
  const To<int> to;
  const Future<std::string> text = to.future.then([](int value) { return std::to_string(value); });
  const Future<void> end = text.then([](const std::string& value) { EXPECT_EQ(value, "5"); });
  const Future<int> again = end.then([] { return 6; });
  EXPECT_FALSE(again.is_done());
  to.set(5);
  EXPECT_EQ(text.get(), "5");
  EXPECT_EQ(again.get(), 6);
  EXPECT_EQ(to.future.then([](const auto& value) { return value * 2; }).get(), 10);
}

TEST(Future, a_function_gets_a_const_result_and_may_return_a_reference) {
  const To<std::string> to;
  const auto same = to.future.then([](auto& value) -> auto& {
    static_assert(std::is_const_v<std::remove_reference_t<decltype(value)>>);
    return value;
  });
  static_assert(std::is_same_v<decltype(same), const Future<std::string>>);
  to.set("abc");
  EXPECT_EQ(same.get(), "abc");
}

TEST(Future, errors_skip_functions_and_may_come_from_them) {
  const To<int> to;
  bool is_called = false;
  const auto first = to.future.then([&](int value) { return is_called = true, value; });
  const auto second = first.then([&](int /*value*/) { is_called = true; });
  to.fail(failure("no result"));
  expect_throws(first, "no result");
  expect_throws(second, "no result");
  EXPECT_FALSE(is_called);
  const auto thrown =
      made(1).then([](int value) -> int { throw std::runtime_error("threw " + std::to_string(value)); });
  expect_throws(thrown, "threw 1");
}

TEST(Future, a_long_chain_does_not_overflow_the_stack) {
  const To<int> to;
  Future<int> last = to.future;
  constexpr int kLinks = 200'000;
  for (int i = 0; i < kLinks; ++i) last = last.then([](int value) { return value + 1; });
  to.set(0);
  ASSERT_TRUE(last.is_done());
  EXPECT_EQ(last.get(), kLinks);
}

TEST(Future, when_all_keeps_the_order) {
  const std::vector<To<int>> to(3);
  const auto all = when_all<int>({to[0].future, to[1].future, to[2].future});
  to[2].set(3);
  to[0].set(1);
  EXPECT_FALSE(all.is_done());
  to[1].set(2);
  EXPECT_EQ(all.get(), (std::vector<int>{1, 2, 3}));
  EXPECT_TRUE(when_all(std::vector<Future<int>>()).get().empty());
  EXPECT_EQ(when_all<int>({to[1].future, to[1].future}).get(), (std::vector<int>{2, 2}));
}

TEST(Future, when_all_fails_with_the_first_error) {
  const test::CapturedLog log;
  const std::vector<To<int>> to(3);
  const auto all = when_all<int>({to[0].future, to[1].future, to[2].future});
  to[1].fail(failure("the first"));
  expect_throws(all, "the first");
  to[0].fail(failure("the second"));
  to[2].set(1);
  expect_throws(all, "the first");
  EXPECT_TRUE(log.lines().empty());
}

TEST(Future, completions_follow_the_order_of_completion) {
  const std::vector<To<int>> to(3);
  auto done = as_completed<int>({to[0].future, to[1].future});
  done.add(to[2].future);
  EXPECT_EQ(done.left(), 3U);
  EXPECT_FALSE(done.next(Deadline::after(std::chrono::milliseconds(1))).has_value());
  to[2].set(2);
  to[0].fail(failure("x"));
  EXPECT_EQ(done.next()->id(), to[2].future.id());
  Completions<int> moved = std::move(done);
  EXPECT_EQ(moved.next()->id(), to[0].future.id());
  std::thread later([&] { to[1].set(1); });
  EXPECT_EQ(moved.next(Deadline::after(kPatience))->get(), 1);
  later.join();
  EXPECT_EQ(moved.left(), 0U);
  EXPECT_FALSE(moved.next().has_value());
}

TEST(Future, completions_may_be_destroyed_before_the_futures) {
  const To<int> to;
  {
    const auto done = as_completed<int>({to.future});
  }
  EXPECT_TRUE(to.set(1));
}

TEST(Future, a_thread_that_completes_futures_must_not_wait) {
  const To<int> to;
  auto done = as_completed<int>({to.future});
  {
    const CallbackThread here;
    EXPECT_TRUE(detail::is_callback_thread());
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(to.future.wait()); }, {"wait forever", "then"});
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(to.future.get()); });
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(done.next()); });
    to.set(1);
    EXPECT_EQ(to.future.get(), 1);
    EXPECT_TRUE(done.next().has_value());
  }
  EXPECT_FALSE(detail::is_callback_thread());
}

TEST(Future, many_threads_wait_for_one_result) {
  for (int round = 0; round < 50; ++round) {
    const To<std::string> to;
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        if (i % 2 == 0)
          to.future.on_done([&](const Future<std::string>& done) { right += done.get() == "abc" ? 1 : 0; });
        right += to.future.get(Deadline::after(kPatience)) == "abc" ? 1 : 0;
      });
    }
    to.set("abc");
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(right, 12);
  }
}

TEST(Future, an_error_lives_until_its_last_reference) {
  for (int round = 0; round < 50; ++round) {
    To<int> to;
    std::thread other([mine = std::move(to.state)] {  // drops it when it ends, before or after the reader
      mine->fail(std::make_exception_ptr(Error(Errc::cancelled, std::string(100, 'a'))));
    });
    try {
      static_cast<void>(std::exchange(to.future, {}).get(Deadline::after(kPatience)));
      ADD_FAILURE() << "it has a value";
    } catch (const Error& error) {
      EXPECT_EQ(error.message(), std::string(100, 'a'));
    }
    other.join();
  }
}

TEST(Future, only_one_of_many_threads_sets_the_value) {
  for (int round = 0; round < 200; ++round) {
    const To<int> to;
    std::atomic<int> firsts{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        const bool is_first = i == 0 ? to.fail(failure("failed")) : to.set(i);
        firsts += is_first ? 1 : 0;
      });
    }
    EXPECT_EQ(to.future.wait(Deadline::after(kPatience)), WaitResult::done);
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(firsts, 1);
  }
}

TEST(Future, when_all_gathers_results_of_many_threads) {
  for (int round = 0; round < 100; ++round) {
    const std::vector<To<int>> to(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&to, i] { to[static_cast<std::size_t>(i)].set(i); });
    const auto all = when_all<int>({to[0].future, to[1].future, to[2].future, to[3].future});
    const auto first = all.then([](const std::vector<int>& values) { return values.front(); });
    EXPECT_EQ(all.get(Deadline::after(kPatience)), (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(first.get(Deadline::after(kPatience)), 0);
    for (auto& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace drover::pool
