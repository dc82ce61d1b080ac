// Numbers of threads.
#include "ipc/object/thread_tag.hpp"

#include <thread>

#include <gtest/gtest.h>

namespace drover::ipc {
namespace {

TEST(ThreadTag, differs_between_living_threads) {
  const ThreadTag mine = this_thread_tag();
  EXPECT_NE(mine, 0);
  EXPECT_EQ(this_thread_tag(), mine);
  ThreadTag first = 0;
  ThreadTag second = 0;
  std::thread outer([&] {
    first = this_thread_tag();
    std::thread([&] { second = this_thread_tag(); }).join();
  });
  outer.join();
  EXPECT_NE(first, mine);
  EXPECT_NE(second, mine);
  EXPECT_NE(first, second);
}

TEST(ThreadTag, a_query_does_not_assign_one) {
  ThreadTag before = 1;
  ThreadTag after = 0;
  std::thread([&] {
    before = known_thread_tag();
    static_cast<void>(this_thread_tag());
    after = known_thread_tag();
  }).join();
  EXPECT_EQ(before, 0);
  EXPECT_NE(after, 0);
}

}  // namespace
}  // namespace drover::ipc
