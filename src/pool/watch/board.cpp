#include "pool/watch/board.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "drover/base/error.hpp"
#include "process/inspect/proc_files.hpp"

namespace drover::pool {
namespace {

template <std::size_t Bytes>
std::string text_of(const BoardText<Bytes>& text) {
  const BoardText<Bytes> copy = text;  // others may write concurrently
  return process::printable({copy.data(), ::strnlen(copy.data(), copy.size())}, Bytes);
}

std::chrono::nanoseconds time_since(std::uint64_t moment, Clock::time_point now) {
  const auto count = std::chrono::nanoseconds(now.time_since_epoch()).count();
  const auto then = static_cast<std::int64_t>(std::min<std::uint64_t>(moment, INT64_MAX));
  return std::chrono::nanoseconds(moment == 0 || then > count ? 0 : count - then);
}

template <std::size_t Words>
std::string text_of(const std::array<std::atomic<std::uint64_t>, Words>& words) {
  BoardText<Words * sizeof(std::uint64_t)> text{};
  for (std::size_t i = 0; i < Words; ++i) {
    const std::uint64_t word = words.at(i).load(std::memory_order_relaxed);
    std::memcpy(&text.at(i * sizeof(word)), &word, sizeof(word));
  }
  return text_of(text);
}

void read_activity(const ActivitySlot& slot, Clock::time_point now, WorkerReading& worker) {
  const std::uint64_t since = slot.since.load(std::memory_order_acquire);
  if (since == 0) return;
  worker.inside = text_of(slot.name);
  worker.inside_since = time_since(since, now);
}

}  // namespace

OwnBoard::OwnBoard(Fd file, Mapping mapping) noexcept
    : file_(std::move(file)), mapping_(std::move(mapping)), board_(reinterpret_cast<Board*>(mapping_.data())) {}

OwnBoard OwnBoard::make(std::string_view pool_name) {
  Fd file = make_memory_file(kBoardFileName, sizeof(Board));
  Mapping mapping = Mapping::shared(file, sizeof(Board));
  new (mapping.data()) Board;
  OwnBoard made(std::move(file), std::move(mapping));
  made.board().application = static_cast<std::uint32_t>(::getpid());
  made.board().started = board_now();
  set_text(made.board().pool, pool_name);
  return made;
}

OwnBoard OwnBoard::open(Fd file) {
  if (check_memory_file(file) != sizeof(Board)) {
    throw Error(Errc::corrupt, "the board of a pool has a wrong size",
                "application and workers must be the same program");
  }
  Mapping mapping = Mapping::shared(file, sizeof(Board));
  OwnBoard opened(std::move(file), std::move(mapping));
  if (opened.board().magic != kBoardMagic || opened.board().version != kBoardVersion) {
    throw Error(Errc::corrupt, "the board of a pool has another version",
                "application and workers must be the same program");
  }
  return opened;
}

std::uint64_t board_now() noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count());
}

WorkerReading read_worker(const Board& board, std::size_t slot, Clock::time_point now) {
  const BoardWorker& from = board.workers.at(slot);
  WorkerReading worker{.slot = slot,
                       .name = text_of(from.title),
                       .pid = static_cast<pid_t>(from.pid.load() & 0x7FFFFFFFU),
                       .place = text_of(from.place),
                       .device = text_of(from.device),
                       .state = from.state.load(),
                       .task = from.task.load(),
                       .since = time_since(from.since.load(), now),
                       .done = from.done.load(),
                       .starts = from.starts.load()};
  const std::uint32_t name = from.name.load();
  if (worker.task != 0 && name < std::min<std::size_t>(board.task_names, kMostBoardTasks)) {
    worker.task_name = text_of(board.tasks.at(name));
  }
  if (worker.task != 0 && from.titled.load(std::memory_order_acquire) == worker.task) {
    worker.task_name = text_of(from.task_title);
  }
  worker.is_interrupted = worker.task != 0 && from.interrupt.load() == worker.task;
  read_activity(from.activity, now, worker);
  return worker;
}

BoardReading read_board(const Board& board, Clock::time_point now) {
  BoardReading reading{.pool = text_of(board.pool),
                       .application = static_cast<pid_t>(board.application & 0x7FFFFFFFU),
                       .age = time_since(board.started, now),
                       .pending = board.pending.load(),
                       .in_flight = board.in_flight.load(),
                       .finished = board.finished.load(),
                       .failed = board.failed.load(),
                       .restarts = board.restarts.load()};
  const auto slots = std::min<std::size_t>(board.worker_slots, kMostBoardWorkers);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    auto worker = read_worker(board, slot, now);
    if (worker.state != WorkerState::none) reading.workers.push_back(std::move(worker));
  }
  return reading;
}

std::string_view to_string(WorkerState state) noexcept {
  switch (state) {
    case WorkerState::none: return "none";
    case WorkerState::starting: return "starting";
    case WorkerState::idle: return "idle";
    case WorkerState::running: return "running";
    case WorkerState::sending: return "sending";
    case WorkerState::ending: return "ending";
    case WorkerState::dead: return "dead";
  }
  return "unknown";
}

}  // namespace drover::pool
