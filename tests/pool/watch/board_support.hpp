// Boards for tests.
#pragma once

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <new>
#include <string_view>

#include "drover/base/clock.hpp"
#include "drover/base/mapping.hpp"
#include "pool/watch/board_layout.hpp"

namespace drover::test {

/// The time `ago`, in nanoseconds of the monotonic clock.
inline std::uint64_t moment_before(std::chrono::nanoseconds ago) {
  return static_cast<std::uint64_t>((std::chrono::nanoseconds(Clock::now().time_since_epoch()) - ago).count());
}

template <std::size_t Bytes>
void set_text(pool::BoardText<Bytes>& text, std::string_view value) {
  text.fill('\0');
  std::memcpy(text.data(), value.data(), std::min(value.size(), Bytes));
}

/// A board in a memory file, as an application makes it.
class TestBoard {
 public:
  TestBoard()
      : file_(make_memory_file(pool::kBoardFileName, sizeof(pool::Board))),
        memory_(Mapping::shared(file_, sizeof(pool::Board))) {
    auto* const board = new (memory_.data()) pool::Board;
    board->application = static_cast<std::uint32_t>(::getpid());
    board->started = moment_before(std::chrono::minutes(5));
    set_text(board->pool, "train");
    set_text(board->tasks[0], "resize");
    board->task_names = 1;
  }
  /// Maps an existing board.
  explicit TestBoard(Fd file) : file_(std::move(file)), memory_(Mapping::shared(file_, sizeof(pool::Board))) {}

  [[nodiscard]] pool::Board& operator*() const noexcept { return *reinterpret_cast<pool::Board*>(memory_.data()); }
  [[nodiscard]] pool::Board* operator->() const noexcept { return &**this; }
  [[nodiscard]] const Fd& file() const noexcept { return file_; }

  /// Adds a worker that entered its state long ago.
  pool::BoardWorker& add_worker(pid_t pid, pool::WorkerState state) const {
    auto& worker = (*this)->workers.at((*this)->worker_slots++);
    worker.pid = static_cast<std::uint32_t>(pid);
    worker.state = state;
    worker.since = moment_before(std::chrono::minutes(2));
    worker.starts = 1;
    set_text(worker.title, "worker-" + std::to_string((*this)->worker_slots));
    set_text(worker.place, "cpu");
    return worker;
  }

 private:
  Fd file_;
  Mapping memory_;
};

}  // namespace drover::test
