// Which tasks of a batch a worker has begun, while the application takes others back.
#include "pool/claim.hpp"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace drover {
namespace {

TEST(Claim, the_word_holds_all_three_numbers) {
  const Claim claim = Claim::of(Claim{.sequence = 0xFFFFFFFF, .next = 0xFFFE, .limit = 0xFFFF}.word());
  EXPECT_EQ(claim.sequence, 0xFFFFFFFFU);
  EXPECT_EQ(claim.next, 0xFFFE);
  EXPECT_EQ(claim.limit, 0xFFFF);
}

TEST(Claim, every_task_is_claimed_once) {
  std::atomic<std::uint64_t> word{0};
  EXPECT_FALSE(claim_next(word));
  begin_batch(word, 7, kMostInBatch);
  for (std::uint32_t i = 0; i < kMostInBatch; ++i) ASSERT_TRUE(claim_next(word));
  EXPECT_FALSE(claim_next(word));
  EXPECT_EQ(Claim::of(word).sequence, 7U);
}

TEST(Claim, what_is_not_begun_can_be_taken_back) {
  std::atomic<std::uint64_t> word{0};
  begin_batch(word, 1, 10);
  EXPECT_TRUE(claim_next(word));
  EXPECT_EQ(take_back(word, 1, 10, 2), 3);
  EXPECT_TRUE(claim_next(word));
  EXPECT_TRUE(claim_next(word));
  EXPECT_FALSE(claim_next(word));
  EXPECT_EQ(take_back(word, 1, 3, 0), 3) << "all are begun";
}

TEST(Claim, nothing_is_taken_from_another_batch_or_where_all_is_kept) {
  std::atomic<std::uint64_t> word{0};
  begin_batch(word, 2, 5);
  EXPECT_EQ(take_back(word, 1, 9, 0), 9);
  EXPECT_EQ(take_back(word, 3, 9, 0), 9);
  EXPECT_EQ(take_back(word, 2, 5, 5), 5);
  EXPECT_EQ(take_back(word, 2, 5, 0xFFFF), 5);
  EXPECT_EQ(Claim::of(word).limit, 5);
}

// Two threads that go through batches in step: one claims, one takes back.
class Race {
 public:
  explicit Race(std::uint32_t rounds) : rounds_(rounds), claimed_(rounds + 1) {}

  // Each task either was claimed or was taken back.
  void run() {
    std::thread worker([this] { work(); });
    for (std::uint32_t round = 1; round <= rounds_; ++round) {
      while (begun_.load(std::memory_order_acquire) < round - round % 2) std::this_thread::yield();
      std::uint16_t limit = kCount;
      for (int again = 0; again < 3; ++again) {
        limit = take_back(word_, round, limit, static_cast<std::uint16_t>(round % 3));
      }
      asked_.store(round, std::memory_order_release);
      while (ended_.load(std::memory_order_acquire) < round) std::this_thread::yield();
      EXPECT_EQ(claimed_[round], limit) << "round " << round;
    }
    worker.join();
  }

 private:
  static constexpr std::uint16_t kCount = 40;

  void work() {
    for (std::uint32_t round = 1; round <= rounds_; ++round) {
      begin_batch(word_, round, kCount);
      begun_.store(round, std::memory_order_release);
      std::uint32_t claimed = 0;
      while (claim_next(word_)) ++claimed;
      claimed_[round] = claimed;
      while (asked_.load(std::memory_order_acquire) < round) std::this_thread::yield();
      ended_.store(round, std::memory_order_release);
    }
  }

  std::uint32_t rounds_;
  std::vector<std::uint32_t> claimed_;  // in each round; the worker is ahead of who looks
  std::atomic<std::uint64_t> word_{0};
  std::atomic<std::uint32_t> begun_{0};
  std::atomic<std::uint32_t> asked_{0};
  std::atomic<std::uint32_t> ended_{0};
};

TEST(Claim, each_task_is_begun_or_taken_back_never_both) { Race(20'000).run(); }

}  // namespace
}  // namespace drover
