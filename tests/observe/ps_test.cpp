#include "observe/ps.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "observe/board_reader.hpp"
#include "pool/watch/board_support.hpp"
#include "pool/watch/stack_sampler.hpp"
#include "support/waiting_child.hpp"

namespace drover::observe {
namespace {

using namespace std::chrono_literals;
using test::set_text;
using test::start_child;
using test::TestBoard;

// The pool of this test, among all pools of this user.
std::optional<PoolInfo> find_pool(const std::string& name, const PoolListOptions& options = {}) {
  for (auto& pool : list_pools(options)) {
    if (pool.board.pool == name && pool.board.application == ::getpid()) return std::move(pool);
  }
  return std::nullopt;
}

TEST(Ps, pool_of_this_process_is_found_with_its_workers) {
  const TestBoard board;
  set_text(board->pool, "ps-found");
  board->finished = 12;
  auto sleeper = start_child("/bin/sleep", {"1000"});
  board.add_worker(sleeper.pid(), pool::WorkerState::running).task = 4;
  board.add_worker(0x7FFFFFF0, pool::WorkerState::idle);
  const auto pool = find_pool("ps-found");
  ASSERT_TRUE(pool);
  EXPECT_TRUE(pool->is_application_alive);
  EXPECT_EQ(pool->board.finished, 12U);
  ASSERT_EQ(pool->processes.size(), 2U);
  EXPECT_TRUE(pool->processes[0].is_alive);
  EXPECT_GT(pool->processes[0].resident, 0U);
  EXPECT_GE(pool->processes[0].age, 0ns);
  EXPECT_LT(pool->processes[0].age, 24h);
  EXPECT_FALSE(pool->processes[1].is_alive);
  EXPECT_TRUE(pool->processes[0].stack.empty());
}

TEST(Ps, board_with_many_holders_is_one_pool) {
  const TestBoard board;
  set_text(board->pool, "ps-once");
  SpawnOptions options{.executable = "/bin/sleep", .arguments = {"1000"}};
  options.inherit = {{board.file().get(), 9}};
  const auto child = ChildProcess::spawn(options);
  const Fd again = board.file().duplicate();
  const auto pools = list_pools();
  EXPECT_EQ(std::ranges::count_if(pools, [](const auto& pool) { return pool.board.pool == "ps-once"; }), 1);
  const auto boards = observe::find_boards();
  EXPECT_TRUE(std::ranges::any_of(
      boards, [&](const auto& found) { return found.is_held_by(::getpid()) && found.is_held_by(child.pid()); }));
}

TEST(Ps, pool_is_gone_with_its_board) {
  {
    const TestBoard board;
    set_text(board->pool, "ps-gone");
    EXPECT_TRUE(find_pool("ps-gone"));
  }
  EXPECT_FALSE(find_pool("ps-gone"));
}

TEST(Ps, stacks_are_requested_from_workers_only) {
  const TestBoard board;
  set_text(board->pool, "ps-stacks");
  auto stranger = start_child("/bin/sleep", {"1000"});
  board.add_worker(stranger.pid(), pool::WorkerState::running);
  SpawnOptions options{.executable = "/bin/sleep", .arguments = {"1000"}};
  options.inherit = {{board.file().get(), 9}};
  const auto worker = ChildProcess::spawn(options);
  board.add_worker(worker.pid(), pool::WorkerState::running);
  const auto pool = find_pool("ps-stacks", {.has_stacks = true});
  ASSERT_TRUE(pool);
  EXPECT_EQ(pool->processes[0].stack_problem, "it is not a worker of this pool");
  EXPECT_EQ(pool->processes[1].stack_problem, "it does not answer such requests");
  EXPECT_EQ(board->workers[0].stack_asked.load(), 0U);
}

TEST(Ps, own_stack_has_names) {
  const TestBoard board;
  set_text(board->pool, "ps-own");
  board.add_worker(::getpid(), pool::WorkerState::running);
  struct sigaction before{};
  ::sigaction(pool::stack_signal(), nullptr, &before);
  pool::answer_stack_requests(board->workers[0]);
  const auto pool = find_pool("ps-own", {.has_stacks = true});
  ::sigaction(pool::stack_signal(), &before, nullptr);
  ASSERT_TRUE(pool);
  EXPECT_EQ(pool->processes[0].stack_problem, "");
  EXPECT_TRUE(std::ranges::any_of(pool->processes[0].stack,
                                  [](const auto& line) { return line.find("list_pools") != std::string::npos; }));
}

// A memory file with the name of a board.
std::optional<std::string> problem_of(const Fd& file) {
  for (const auto& found : observe::find_boards()) {
    if (found.is_held_by(::getpid())) return found.problem;
  }
  static_cast<void>(file);
  return std::nullopt;
}

TEST(Ps, files_that_only_look_like_boards_are_problems) {
  const auto small = make_memory_file(pool::kBoardFileName, 4096);
  EXPECT_NE(problem_of(small)->find("4096 bytes"), std::string::npos);
}

TEST(Ps, board_of_another_version_is_a_problem) {
  const TestBoard board;
  board->version = 99;
  EXPECT_NE(problem_of(board.file())->find("version 99"), std::string::npos);
  const auto pools = list_pools();
  const auto ours =
      std::ranges::find_if(pools, [](const auto& pool) { return pool.board.application == ::getpid(); });
  ASSERT_NE(ours, pools.end());
  EXPECT_NE(ours->problem, "");
  EXPECT_TRUE(ours->board.workers.empty());
}

TEST(Ps, file_that_could_shrink_is_not_read) {
  const Fd open(::memfd_create(pool::kBoardFileName, MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(open.get(), sizeof(pool::Board)), 0);
  EXPECT_NE(problem_of(open).value_or(""), "");
}

TEST(Ps, without_proc_there_are_no_pools) { EXPECT_TRUE(list_pools({.proc = "/nonexistent"}).empty()); }

}  // namespace
}  // namespace drover::observe
