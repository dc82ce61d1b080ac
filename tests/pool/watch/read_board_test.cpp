#include "pool/watch/board.hpp"

#include <cstring>
#include <memory>
#include <random>
#include <span>

#include <gtest/gtest.h>

#include "base/activity.hpp"
#include "pool/watch/board_support.hpp"

namespace drover::pool {
namespace {

using namespace std::chrono_literals;
using test::moment_before;
using test::TestBoard;

TEST(ReadBoard, everything_a_worker_writes_is_read) {
  const TestBoard board;
  board->pending = 3;
  board->failed = 1;
  auto& worker = board.add_worker(1234, WorkerState::running);
  worker.task = 7;
  worker.done = 5;
  worker.interrupt = 7;
  const auto reading = read_board(*board);
  EXPECT_EQ(reading.pool, "train");
  EXPECT_EQ(reading.application, ::getpid());
  EXPECT_EQ(reading.pending, 3U);
  EXPECT_EQ(reading.failed, 1U);
  EXPECT_GE(reading.age, 5min);
  ASSERT_EQ(reading.workers.size(), 1U);
  const auto& shown = reading.workers.front();
  EXPECT_EQ(shown.name, "worker-1");
  EXPECT_EQ(shown.pid, 1234);
  EXPECT_EQ(shown.state, WorkerState::running);
  EXPECT_EQ(shown.task, 7U);
  EXPECT_EQ(shown.task_name, "resize");
  EXPECT_GE(shown.since, 2min);
  EXPECT_EQ(shown.done, 5U);
  EXPECT_EQ(shown.inside, "");
  EXPECT_TRUE(shown.is_interrupted);
}

TEST(ReadBoard, a_title_is_valid_for_its_task_only) {
  const TestBoard board;
  auto& worker = board.add_worker(1234, WorkerState::running);
  worker.task = 7;
  worker.titled = 6;
  worker.task_title[0] = 0x6E656874;  // "then"
  EXPECT_NE(read_worker(*board, 0).task_name, "then");
  worker.titled = 7;
  EXPECT_EQ(read_worker(*board, 0).task_name, "then");
  for (auto& word : worker.task_title) word = ~std::uint64_t{0};
  EXPECT_EQ(read_worker(*board, 0).task_name, std::string(64, '?'));
}

TEST(ReadBoard, slots_without_a_worker_are_skipped) {
  const TestBoard board;
  board.add_worker(1, WorkerState::idle);
  board.add_worker(0, WorkerState::none);
  board.add_worker(3, WorkerState::dead);
  const auto reading = read_board(*board);
  ASSERT_EQ(reading.workers.size(), 2U);
  EXPECT_EQ(reading.workers[1].slot, 2U);
}

TEST(ReadBoard, the_current_call_of_a_thread_is_shown_until_it_ends) {
  const TestBoard board;
  auto& worker = board.add_worker(::getpid(), WorkerState::running);
  detail::activity_slot = &worker.activity;
  {
    const ActivityMark outer("queue.get");
    EXPECT_EQ(read_worker(*board, 0).inside, "queue.get");
    {
      const ActivityMark inner("cuDevicePrimaryCtxRetain");
      EXPECT_EQ(read_worker(*board, 0).inside, "cuDevicePrimaryCtxRetain");  // not truncated
    }
    EXPECT_EQ(read_worker(*board, 0).inside, "queue.get");
  }
  EXPECT_EQ(read_worker(*board, 0).inside, "");
  detail::activity_slot = nullptr;
}

TEST(ReadBoard, a_thread_without_a_board_shows_nothing) {
  const TestBoard board;
  board.add_worker(::getpid(), WorkerState::running);
  const ActivityMark mark("queue.get");
  EXPECT_EQ(read_worker(*board, 0).inside, "");
}

TEST(ReadBoard, counts_texts_and_times_are_not_trusted) {
  const TestBoard board;
  board->worker_slots = 0xFFFFFFFF;
  board->task_names = 0xFFFFFFFF;
  board->pool.fill('\033');
  board->started = ~std::uint64_t{0};
  auto& worker = board->workers.back();
  worker.state = static_cast<WorkerState>(99);
  worker.task = 1;
  worker.name = 0xFFFFFFFF;
  worker.title.fill('x');
  worker.since = moment_before(-10min);
  worker.pid = 0xFFFFFFFF;
  const auto reading = read_board(*board);
  EXPECT_EQ(reading.pool, std::string(48, '?'));
  EXPECT_EQ(reading.age, 0ns);
  ASSERT_EQ(reading.workers.size(), 1U);
  EXPECT_EQ(to_string(reading.workers[0].state), "unknown");
  EXPECT_EQ(reading.workers[0].task_name, "");
  EXPECT_EQ(reading.workers[0].name.size(), 32U);
  EXPECT_EQ(reading.workers[0].since, 0ns);
  EXPECT_GT(reading.workers[0].pid, 0);
}

TEST(ReadBoard, random_bytes_are_read_without_harm) {
  const TestBoard board;
  std::mt19937_64 random(3);  // NOLINT(bugprone-random-generator-seed,cert-msc51-cpp): reproducible
  for (int round = 0; round < 20; ++round) {
    const auto bytes = std::as_writable_bytes(std::span(&*board, 1));
    for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
      const auto word = random();
      std::memcpy(&bytes[at], &word, sizeof(word));
    }
    const auto reading = read_board(*board);
    EXPECT_LE(reading.workers.size(), kMostBoardWorkers);
  }
}

TEST(ReadBoard, states_have_names) {
  EXPECT_EQ(to_string(WorkerState::none), "none");
  EXPECT_EQ(to_string(WorkerState::starting), "starting");
  EXPECT_EQ(to_string(WorkerState::idle), "idle");
  EXPECT_EQ(to_string(WorkerState::running), "running");
  EXPECT_EQ(to_string(WorkerState::sending), "sending");
  EXPECT_EQ(to_string(WorkerState::ending), "ending");
  EXPECT_EQ(to_string(WorkerState::dead), "dead");
}

}  // namespace
}  // namespace drover::pool
