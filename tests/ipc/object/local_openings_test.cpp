// The number of handles of an object in a process, also across a fork.
#include "ipc/object/local_openings.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "ipc/sync/sync_support.hpp"

namespace drover::ipc {
namespace {

using namespace std::chrono_literals;
using test::TestSession;

// Runs `body` in a forked child and returns its result; kills a child that hangs, which then has none.
bool is_true_in_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    ::_exit(body() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status == 0;
}

TEST(LocalOpening, reports_the_first_and_the_last_handle) {
  TestSession session;
  const SharedObject object(session.join(), ObjectSpec{.kind = ObjectKind::lock});
  int first = 0;
  int last = 0;
  {
    const LocalOpening outer(object, [&] { ++first; }, [&] { ++last; });
    const LocalOpening inner(object, [&] { ++first; }, [&] { ++last; });
    EXPECT_EQ(first, 1);
  }
  EXPECT_EQ(first, 1);
  EXPECT_EQ(last, 1);
}

// The child opens the parent's object, as if it were one of its own at the same address.
TEST(LocalOpening, handles_of_the_parent_are_not_counted_in_a_forked_child) {
  TestSession session;
  const SharedObject object(session.join(), ObjectSpec{.kind = ObjectKind::lock});
  const LocalOpening parents(object, [] {}, [] {});
  EXPECT_TRUE(is_true_in_child([&] {
    bool is_first = false;
    const LocalOpening own(object, [&] { is_first = true; }, [] {});
    return is_first;
  }));
  bool is_first = false;
  const LocalOpening again(object, [&] { is_first = true; }, [] {});
  EXPECT_FALSE(is_first);
}

// The other thread neither ends nor allocates during the fork, which sanitizers do not support.
TEST(LocalOpening, a_child_forked_while_another_thread_opens_can_open_too) {
  TestSession session;
  const SharedObject object(session.join(), ObjectSpec{.kind = ObjectKind::lock});
  std::atomic<bool> is_inside = false;
  std::atomic<bool> is_over = false;
  std::thread opener([&] {
    const LocalOpening slow(
        object,
        [&] {
          is_inside = true;
          std::this_thread::sleep_for(20ms);
        },
        [] {});
    is_over.wait(false);
  });
  EXPECT_TRUE(test::eventually([&] { return is_inside.load(); }));
  EXPECT_TRUE(is_true_in_child([&] {
    const LocalOpening own(object, [] {}, [] {});
    return true;
  }));
  is_over = true;
  is_over.notify_one();
  opener.join();
}

}  // namespace
}  // namespace drover::ipc
