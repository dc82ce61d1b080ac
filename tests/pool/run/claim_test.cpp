// The claim word: a worker begins tasks of a batch while the application takes others back.
#include "pool/run/claim.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/clock.hpp"

namespace drover::pool {
namespace {

const std::atomic<std::uint32_t> no_fence{0};

TEST(Claim, the_word_holds_all_three_numbers) {
  const Claim claim = Claim::of(Claim{.sequence = 0xFFFFFFFF, .next = 0xFFFE, .limit = 0xFFFF}.word());
  EXPECT_EQ(claim.sequence, 0xFFFFFFFFU);
  EXPECT_EQ(claim.next, 0xFFFE);
  EXPECT_EQ(claim.limit, 0xFFFF);
}

TEST(Claim, every_task_is_claimed_once) {
  std::atomic<std::uint64_t> word{0};
  EXPECT_FALSE(claim_next(word));
  EXPECT_TRUE(begin_batch(word, no_fence, 7, kMostInBatch));
  for (std::uint32_t i = 0; i < kMostInBatch; ++i) ASSERT_TRUE(claim_next(word));
  EXPECT_FALSE(claim_next(word));
  EXPECT_EQ(Claim::of(word).sequence, 7U);
}

TEST(Claim, tasks_that_have_not_begun_can_be_taken_back) {
  std::atomic<std::uint64_t> word{0};
  EXPECT_TRUE(begin_batch(word, no_fence, 1, 10));
  EXPECT_TRUE(claim_next(word));
  EXPECT_EQ(take_back(word, 1, 10, 2), 3);
  EXPECT_TRUE(claim_next(word));
  EXPECT_TRUE(claim_next(word));
  EXPECT_FALSE(claim_next(word));
  EXPECT_EQ(take_back(word, 1, 3, 0), 3) << "all have begun";
}

TEST(Claim, nothing_is_taken_back_from_another_batch_or_below_keep) {
  std::atomic<std::uint64_t> word{0};
  EXPECT_TRUE(begin_batch(word, no_fence, 2, 5));
  EXPECT_EQ(take_back(word, 1, 9, 0), 9);
  EXPECT_EQ(take_back(word, 3, 9, 0), 9);
  EXPECT_EQ(take_back(word, 2, 5, 5), 5);
  EXPECT_EQ(take_back(word, 2, 5, 0xFFFF), 5);
  EXPECT_EQ(Claim::of(word).limit, 5);
}

// How long two threads race; a busy machine gets through few rounds.
Deadline enough() { return Deadline::after(std::chrono::seconds(5)); }

// Two threads that process batches in step: one claims tasks, one takes them back.
class Race {
 public:
  explicit Race(std::uint32_t rounds) : rounds_(rounds), claimed_(rounds + 1) {}

  // Each task is either claimed or taken back.
  void run() {
    std::thread worker([this] { work(); });
    const Deadline deadline = enough();
    for (std::uint32_t round = 1; round <= rounds_; ++round) {
      while (begun_.load(std::memory_order_acquire) < round - round % 2) std::this_thread::yield();
      std::uint16_t limit = kCount;
      for (int again = 0; again < 3; ++again) {
        limit = take_back(word_, round, limit, static_cast<std::uint16_t>(round % 3));
      }
      if (deadline.has_passed()) rounds_ = round;
      asked_.store(round, std::memory_order_release);
      while (ended_.load(std::memory_order_acquire) < round) std::this_thread::yield();
      EXPECT_EQ(claimed_[round], limit) << "round " << round;
    }
    worker.join();
  }

 private:
  static constexpr std::uint16_t kCount = 40;

  void work() {
    for (std::uint32_t round = 1, last = round; round <= last; ++round) {
      EXPECT_TRUE(begin_batch(word_, no_fence, round, kCount));
      begun_.store(round, std::memory_order_release);
      std::uint32_t claimed = 0;
      while (claim_next(word_)) ++claimed;
      claimed_[round] = claimed;
      while (asked_.load(std::memory_order_acquire) < round) std::this_thread::yield();
      last = rounds_;
      ended_.store(round, std::memory_order_release);
    }
  }

  std::uint32_t rounds_;                // the worker reads it once asked
  std::vector<std::uint32_t> claimed_;  // in each round; the worker is ahead of the reader
  std::atomic<std::uint64_t> word_{0};
  std::atomic<std::uint32_t> begun_{0};
  std::atomic<std::uint32_t> asked_{0};
  std::atomic<std::uint32_t> ended_{0};
};

TEST(Claim, each_task_is_either_begun_or_taken_back) { Race(20'000).run(); }

TEST(Claim, no_batch_up_to_the_fence_begins) {
  std::atomic<std::uint64_t> word{0};
  std::atomic<std::uint32_t> fence{0};
  EXPECT_TRUE(begin_batch(word, fence, 1, 5));
  EXPECT_EQ(set_fence(fence, word, 3), 1U);
  EXPECT_FALSE(begin_batch(word, fence, 2, 5));
  EXPECT_FALSE(begin_batch(word, fence, 3, 5));
  EXPECT_TRUE(begin_batch(word, fence, 4, 5));
}

// Takes back and resends some tasks, in batches of up to three. Each task begins once, in order.
class Overtaking {
 public:
  explicit Overtaking(std::uint32_t tasks) : tasks_(tasks) {}

  void run() {
    std::thread worker([this] { work(); });
    std::minstd_rand random(7);
    std::uint32_t next = 1;
    const Deadline deadline = enough();
    while (next <= tasks_ || !sent_.empty()) {
      for (int i = 0; i < 2 && next <= tasks_; ++i) send(next, static_cast<std::uint32_t>(random() % 3 + 1));
      if (random() % 2 == 0) std::this_thread::yield();
      next = take_all_back(next);
      if (deadline.has_passed()) tasks_ = next - 1;
      if (next > tasks_ && !sent_.empty()) std::this_thread::yield();
    }
    put({.sequence = 0, .first = 0, .count = 0});
    worker.join();
    EXPECT_EQ(ran_.size(), tasks_);
    EXPECT_TRUE(std::ranges::is_sorted(ran_));
    EXPECT_EQ(std::ranges::adjacent_find(ran_), ran_.end()) << "a task began twice";
  }

 private:
  struct Sent {
    std::uint32_t sequence;
    std::uint32_t first;
    std::uint16_t count;
  };

  void put(const Sent& batch) {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(batch);
  }

  void send(std::uint32_t& next, std::uint32_t most) {
    const auto count = static_cast<std::uint16_t>(std::min(most, tasks_ + 1 - next));
    sent_.push_back({.sequence = ++sequence_, .first = next, .count = count});
    put(sent_.back());
    next += count;
  }

  // As the pool does it. Returns the first task to send again.
  std::uint32_t take_all_back(std::uint32_t next) {
    const std::uint32_t current = set_fence(fence_, word_, sequence_);
    for (const Sent& batch : sent_) {
      const std::uint16_t kept = batch.sequence > current ? 0 : take_back(word_, batch.sequence, batch.count, 0);
      if (kept < batch.count) {
        next = batch.first + kept;
        break;
      }
    }
    sent_.clear();
    return next;
  }

  void work() {
    for (;;) {
      std::optional<Sent> batch;
      {
        const std::lock_guard lock(mutex_);
        if (!inbox_.empty()) {
          batch = inbox_.front();
          inbox_.pop_front();
        }
      }
      if (!batch) {
        std::this_thread::yield();
        continue;
      }
      if (batch->sequence == 0) return;
      if (!begin_batch(word_, fence_, batch->sequence, batch->count)) continue;
      for (std::uint32_t task = batch->first; claim_next(word_); ++task) ran_.push_back(task);
    }
  }

  std::uint32_t tasks_;
  std::uint32_t sequence_ = 0;
  std::vector<Sent> sent_;
  std::vector<std::uint32_t> ran_;
  std::mutex mutex_;
  std::deque<Sent> inbox_;
  std::atomic<std::uint64_t> word_{0};
  std::atomic<std::uint32_t> fence_{0};
};

TEST(Claim, a_batch_does_not_overtake_one_that_was_taken_back) { Overtaking(20'000).run(); }

}  // namespace
}  // namespace drover::pool
