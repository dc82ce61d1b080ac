// The board of a pool.
#include "pool/watch/board.hpp"

#include <unistd.h>

#include <stdexcept>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "support/expect_error.hpp"

namespace drover::pool {
namespace {

using test::expect_error;

TEST(Board, one_mapping_sees_writes_of_another) {
  const OwnBoard made = OwnBoard::make("my pool");
  const OwnBoard opened = OwnBoard::open(made.file().duplicate());
  ASSERT_NE(&opened.board(), &made.board());
  EXPECT_EQ(opened.board().magic, kBoardMagic);
  EXPECT_EQ(opened.board().version, kBoardVersion);
  EXPECT_EQ(opened.board().application, static_cast<std::uint32_t>(::getpid()));
  EXPECT_STREQ(opened.board().pool.data(), "my pool");
  opened.worker(3).state = WorkerState::running;
  opened.worker(kMostBoardWorkers - 1).task = 17;
  EXPECT_EQ(made.worker(3).state, WorkerState::running);
  EXPECT_EQ(made.worker(kMostBoardWorkers - 1).task, 17U);
  EXPECT_EQ(made.worker(0).state, WorkerState::none);
}

TEST(Board, moving_the_owner_keeps_its_address) {
  OwnBoard first = OwnBoard::make("p");
  Board* const board = &first.board();
  const OwnBoard second = std::move(first);
  EXPECT_EQ(&second.board(), board);
  second.board().pending = 4;
}

TEST(Board, a_worker_beyond_the_last_is_refused) {
  const OwnBoard made = OwnBoard::make("p");
  EXPECT_THROW(static_cast<void>(made.worker(kMostBoardWorkers)), std::out_of_range);
}

TEST(Board, another_file_is_corrupt) {
  const auto open = [](std::size_t bytes) {
    static_cast<void>(OwnBoard::open(make_memory_file(kBoardFileName, bytes)));
  };
  expect_error(Errc::corrupt, [&] { open(sizeof(Board) + 4096); }, {"size"});
  expect_error(Errc::corrupt, [&] { open(4096); });
  expect_error(Errc::corrupt, [&] { open(sizeof(Board)); }, {"board"});
  const OwnBoard other = OwnBoard::make("p");
  other.board().version = kBoardVersion + 1;
  expect_error(Errc::corrupt, [&] { static_cast<void>(OwnBoard::open(other.file().duplicate())); });
}

TEST(Board, texts_are_truncated_and_terminated) {
  BoardText<8> text{};
  set_text(text, "longer than that");
  EXPECT_STREQ(text.data(), "longer ");
  set_text(text, "ab");
  EXPECT_EQ(text, (BoardText<8>{'a', 'b'}));
  set_text(text, "");
  EXPECT_STREQ(text.data(), "");
}

TEST(Board, its_clock_is_monotonic) {
  const auto before = board_now();
  EXPECT_GT(before, 0U);
  EXPECT_GE(board_now(), before);
}

}  // namespace
}  // namespace drover::pool
