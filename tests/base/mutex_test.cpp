#include "drover/base/mutex.hpp"

#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace drover {
namespace {

class Counter {
 public:
  void add() DROVER_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ++value_;
    changed_.notify_all();
  }
  int wait_for(int least) DROVER_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (value_ < least) changed_.wait(mutex_);
    return value_;
  }
  bool has_passed_within(int least, std::chrono::milliseconds limit) DROVER_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (value_ < least) {
      if (changed_.wait_for(mutex_, limit) == std::cv_status::timeout) return value_ >= least;
    }
    return true;
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  int value_ DROVER_GUARDED_BY(mutex_) = 0;
};

TEST(Mutex, holders_exclude_each_other) {
  Counter counter;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&counter] {
      for (int round = 0; round < 1000; ++round) counter.add();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(counter.wait_for(0), 4000);
}

TEST(Mutex, lock_is_released_at_the_end_of_the_scope) {
  Mutex mutex;
  {
    const MutexLock lock(mutex);
  }
  {
    const MutexLock lock(mutex);
  }
  mutex.lock();
  mutex.unlock();
}

TEST(ConditionVariable, waiter_wakes_when_the_state_has_changed) {
  Counter counter;
  int seen = 0;
  std::thread waiter([&] { seen = counter.wait_for(3); });
  for (int i = 0; i < 3; ++i) counter.add();
  waiter.join();
  EXPECT_EQ(seen, 3);
}

TEST(ConditionVariable, wait_with_a_limit_ends_without_a_change) {
  Counter counter;
  EXPECT_FALSE(counter.has_passed_within(1, std::chrono::milliseconds(1)));
  counter.add();
  EXPECT_TRUE(counter.has_passed_within(1, std::chrono::milliseconds(1)));
}

}  // namespace
}  // namespace drover
