// Shared arrays: memory with a lock.
#include "drover/ipc/value.hpp"

#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "ipc/sync/sync_support.hpp"
#include "support/expect_error.hpp"

namespace drover::ipc {
namespace {

using test::expect_error;
using test::kRounds;
using test::TestSession;

TEST(SharedArray, is_initially_zero_and_seen_by_all) {
  TestSession session;
  SharedArray<int> array(session.join(), 1000);
  SharedArray<int> other(session.join(), array.handle());
  EXPECT_EQ(array.size(), 1000U);
  EXPECT_EQ(other.size(), 1000U);
  for (const int element : array.span()) ASSERT_EQ(element, 0);
  std::iota(array.span().begin(), array.span().end(), 0);
  EXPECT_EQ(other[999], 999);
  other[0] = 42;
  EXPECT_EQ(std::as_const(array)[0], 42);
  EXPECT_EQ(std::as_const(array).span().data(), array.span().data());
}

TEST(SharedArray, can_be_larger_than_a_shared_memory_file) {
  TestSession session;
  SharedArray<double> array(session.join(), std::size_t{1} << 20U);
  array[array.size() - 1] = 1.5;
  const SharedArray<double> other(session.join(), array.handle());
  EXPECT_EQ(other[other.size() - 1], 1.5);
}

struct alignas(64) Line {
  std::array<char, 64> bytes;
};

TEST(SharedArray, elements_are_aligned) {
  TestSession session;
  SharedArray<Line> array(session.join(), 3);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(array.span().data()) % alignof(Line), 0U);
}

TEST(SharedArray, impossible_sizes_are_refused) {
  TestSession session;
  const auto membership = session.join();
  expect_error(Errc::invalid_argument, [&] { const SharedArray<int> none(membership, 0); },
               {"0 elements of 4 bytes"});
  expect_error(Errc::invalid_argument,
               [&] { const SharedArray<int> huge(membership, std::numeric_limits<std::size_t>::max() / 2); });
}

TEST(SharedArray, opened_as_another_type_is_an_error) {
  TestSession session;
  const auto membership = session.join();
  const SharedArray<int> array(session.join(), 4);
  expect_error(Errc::invalid_argument, [&] { const SharedArray<double> wrong(membership, array.handle()); },
               {"have 4 bytes, not 8"});
}

TEST(SharedArray, can_be_moved) {
  TestSession session;
  SharedArray<int> array(session.join(), 2);
  array[1] = 5;
  SharedArray<int> moved(std::move(array));
  EXPECT_EQ(moved[1], 5);
  const HeldLock held(moved.lock());
  EXPECT_TRUE(held.is_held());
}

TEST(SharedArray, its_lock_excludes_threads) {
  TestSession session;
  SharedArray<std::int64_t> array(session.join(), 2);
  test::run_threads(session, 4, [&](const std::shared_ptr<Membership>& membership, int) {
    SharedArray<std::int64_t> mine(membership, array.handle());
    for (int round = 0; round < kRounds; ++round) {
      const HeldLock held(mine.lock());
      ++mine[0];
      mine[1] = mine[0];
    }
  });
  EXPECT_EQ(array[0], std::int64_t{4} * kRounds);
  EXPECT_EQ(array[1], array[0]);
}

}  // namespace
}  // namespace drover::ipc
